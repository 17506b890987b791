// SPDX-License-Identifier: Apache-2.0
// manifest.json of recorded runs.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "stepgraph/base/file.h"
#include "stepgraph/train/check.h"

namespace stepgraph {
namespace {

using Json = nlohmann::json;
constexpr int64_t manifest_bytes_max = int64_t{64} << 20;

/// A field of the entry, or its default; UserError for another type.
template <class T>
T field(const Json& object, const char* key, T otherwise, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    throw UserError(where + ": '" + key + "' has another type than is wanted");
  }
}

Optimizer read_optimizer(const Json& entry, const std::string& where) {
  const auto found = entry.find("optimizer");
  if (found == entry.end() || !found->is_object()) throw UserError(where + ": has no optimizer");
  const std::string kind = field<std::string>(*found, "kind", "", where);
  Optimizer optimizer;
  optimizer.rate = field(*found, "lr", 1e-3, where);
  optimizer.weight_decay = field(*found, "weight_decay", 0.0, where);
  if (kind == "SGD") {
    optimizer.kind = Optimizer::Kind::Sgd;
    optimizer.momentum = field(*found, "momentum", 0.0, where);
    optimizer.dampening = field(*found, "dampening", 0.0, where);
    optimizer.nesterov = field(*found, "nesterov", false, where);
  } else if (kind == "AdamW" || kind == "Adam") {
    optimizer.kind = kind == "Adam" ? Optimizer::Kind::Adam : Optimizer::Kind::AdamW;
    const std::vector<double> betas = field(*found, "betas", std::vector<double>{0.9, 0.999}, where);
    if (betas.size() != 2) throw UserError(where + ": found " + std::to_string(betas.size()) + " betas, wanted 2");
    optimizer.beta1 = betas[0], optimizer.beta2 = betas[1];
    optimizer.epsilon = field(*found, "eps", 1e-8, where);
    if (field(*found, "amsgrad", false, where)) throw UserError(where + ": amsgrad is not supported");
  } else {
    throw UserError(where + ": found optimizer kind '" + kind + "', wanted SGD, Adam or AdamW");
  }
  try {
    check(optimizer);
  } catch (const UserError& error) {
    throw UserError(where + ": " + error.what());
  }
  return optimizer;
}

std::map<std::string, Tolerance> read_tolerances(const Json& entry, const std::string& where) {
  std::map<std::string, Tolerance> tolerances;
  const auto found = entry.find("tolerance");
  if (found == entry.end()) return tolerances;
  if (!found->is_object()) throw UserError(where + ": 'tolerance' is not an object");
  for (const auto& [group, values] : found->items()) {
    if (!values.is_object()) throw UserError(where + ": tolerance of '" + group + "' is not an object");
    Tolerance tolerance;
    tolerance.absolute = field(values, "suggest_abs", tolerance.absolute, where);
    tolerance.relative = field(values, "suggest_rel", tolerance.relative, where);
    if (values.contains("suggest_rms")) tolerance.rms = field(values, "suggest_rms", 0.0, where);
    tolerances[group] = tolerance;
  }
  return tolerances;
}

/// A name of a file in the folder, never a path out of it.
std::string file_name(const Json& files, const char* key, const std::string& otherwise, const std::string& where) {
  std::string name = field<std::string>(files, key, otherwise, where);
  if (name.find('/') != std::string::npos || name == "..") throw UserError(where + ": found file '" + name + "', wanted a name in the folder");
  return name;
}

RecordedRun read_entry(const Json& entry, const std::string& where) {
  RecordedRun run;
  run.name = field<std::string>(entry, "name", "", where);
  const Json files = entry.contains("files") ? entry.at("files") : Json::object();
  if (!files.is_object()) throw UserError(where + ": 'files' is not an object");
  run.exported = file_name(files, "exported", run.exported, where);
  run.core = file_name(files, "core", run.core, where);
  run.data = file_name(files, "data", run.data, where);
  run.optimizer = read_optimizer(entry, where);
  run.steps = field<int64_t>(entry, "steps", 0, where);
  if (run.steps < 0 || run.steps > 1'000'000) throw UserError(where + ": found " + std::to_string(run.steps) + " steps, wanted 0 to 1000000");
  run.tied = field<std::map<std::string, std::string>>(entry, "tied", {}, where);
  run.noise_gradients = field<std::vector<std::string>>(entry, "noise_gradients", {}, where);
  run.core_keeps_gradients = field(entry, "core_keeps_gradients", true, where);
  run.tolerances = read_tolerances(entry, where);
  return run;
}

}  // namespace

RecordedRun parse_recorded_run(const std::string& text, const std::string& run, const std::string& where) {
  Json manifest;
  try {
    manifest = Json::parse(text);
  } catch (const Json::exception& problem) {
    throw UserError(where + ": not JSON: " + problem.what());
  }
  if (!manifest.is_object()) throw UserError(where + ": found no JSON object");
  const auto samples = manifest.find("samples");
  if (samples == manifest.end()) return read_entry(manifest, where);  // one run and nothing else
  if (!samples->is_array()) throw UserError(where + ": 'samples' is not a list");
  for (const Json& entry : *samples)
    if (entry.is_object() && (samples->size() == 1 || field<std::string>(entry, "name", "", where) == run)) return read_entry(entry, where + ": " + run);
  throw UserError(where + ": has no entry named '" + run + "'");
}

RecordedRun read_recorded_run(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path path = fs::absolute(fs::path(folder), ignored).lexically_normal();
  const fs::path inner = path.has_filename() ? path : path.parent_path();
  if (!fs::is_directory(inner, ignored)) throw UserError("cannot open " + folder + ": not a folder");
  for (const fs::path& manifest : {inner / "manifest.json", inner.parent_path() / "manifest.json"})
    if (fs::exists(manifest, ignored)) return parse_recorded_run(read_file(manifest.string(), manifest_bytes_max), inner.filename().string(), manifest.string());
  throw UserError(folder + ": neither it nor its parent has a manifest.json (docs/check.md)");
}

}  // namespace stepgraph
