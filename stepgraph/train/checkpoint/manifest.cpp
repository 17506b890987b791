// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/checkpoint/manifest.h"
#include <fmt/core.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/data/json_text.h"

namespace stepgraph {
namespace {

using nlohmann::json;

constexpr const char* format_name = "stepgraph checkpoint";

std::string checksum(const std::string& text) { return hash_bytes(std::as_bytes(std::span(text))).text(); }

/// The fields of one JSON object: each must be there with its type, and nothing else.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail(fmt::format("is a JSON {}, wanted an object", object_.type_name()));
  }
  std::string text(const char* key) {
    const json& value = at(key);
    if (!value.is_string()) fail(fmt::format("{} is a JSON {}, wanted a string", key, value.type_name()));
    return value.get<std::string>();
  }
  uint64_t number(const char* key, uint64_t largest = INT64_MAX) {
    const json& value = at(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > largest) fail(fmt::format("{} is not an integer from 0 to {}", key, largest));
    return value.get<uint64_t>();
  }
  int64_t natural(const char* key) { return static_cast<int64_t>(number(key)); }
  const json& array(const char* key) {
    const json& value = at(key);
    if (!value.is_array()) fail(fmt::format("{} is a JSON {}, wanted an array", key, value.type_name()));
    return value;
  }
  std::map<std::string, std::string> texts(const char* key) {
    const json& value = at(key);
    if (!value.is_object()) fail(fmt::format("{} is a JSON {}, wanted an object", key, value.type_name()));
    std::map<std::string, std::string> out;
    for (const auto& [name, entry] : value.items()) {
      if (!entry.is_string()) fail(fmt::format("{}: {} is a JSON {}, wanted a string", key, quoted_name(name), entry.type_name()));
      out[name] = entry.get<std::string>();
    }
    return out;
  }
  void no_more() const {
    for (const auto& [key, value] : object_.items())
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) fail(fmt::format("unknown key {}", quoted_name(key)));
  }
  [[noreturn]] void fail(const std::string& what) const { throw UserError(fmt::format("{}: {}", where_, what)); }

 private:
  const json& at(const char* key) {
    if (!object_.contains(key)) fail(fmt::format("key {} is missing", key));
    known_.emplace_back(key);
    return object_[key];
  }
  const json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

/// A name in the checkpoint's own folder: it can lead nowhere else.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

ManifestFile parse_file(const json& entry, const std::string& where) {
  Fields fields(entry, where + ": files");
  ManifestFile file{fields.text("name"), fields.natural("bytes"), fields.text("checksum")};
  fields.no_more();
  if (!is_plain_name(file.name)) fields.fail(fmt::format("{} is not the name of a file in this folder", quoted_name(file.name)));
  return file;
}

ManifestTensor parse_tensor(const json& entry, const std::string& where) {
  Fields fields(entry, where + ": tensors");
  ManifestTensor tensor;
  tensor.name = fields.text("name");
  tensor.file = fields.text("file");
  const std::string code = fields.text("dtype");
  const auto dtype = dtype_from_name(code);
  if (!dtype) fields.fail(fmt::format("{} has the unknown dtype {}", quoted_name(tensor.name), quoted_name(code)));
  tensor.dtype = *dtype;
  for (const json& size : fields.array("sizes")) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      fields.fail(fmt::format("{} has a size that is not an integer from 0", quoted_name(tensor.name)));
    tensor.sizes.push_back(size.get<int64_t>());
  }
  fields.no_more();
  checked_bytes(tensor.dtype, tensor.sizes, fmt::format("{}: tensor {}", where, quoted_name(tensor.name)));
  return tensor;
}

template <class Entry>
void check_names(const std::vector<Entry>& entries, const char* kind, const std::string& where) {
  for (size_t i = 1; i < entries.size(); ++i)
    if (entries[i].name <= entries[i - 1].name)
      throw UserError(fmt::format("{}: {} {} is out of order or there twice", where, kind, quoted_name(entries[i].name)));
}

json body_of(const Manifest& manifest) {
  json files = json::array(), tensors = json::array();
  for (const ManifestFile& file : manifest.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  for (const ManifestTensor& tensor : manifest.tensors)
    tensors.push_back({{"name", tensor.name}, {"dtype", std::string(name(tensor.dtype))}, {"sizes", tensor.sizes}, {"file", tensor.file}});
  return {{"format", format_name},        {"version", checkpoint_format_version},
          {"step", manifest.step},        {"module_hash", manifest.module_hash},
          {"cursor", manifest.cursor},    {"seed", manifest.seed},
          {"extra", manifest.extra},      {"files", std::move(files)},
          {"tensors", std::move(tensors)}};
}

void check_version(const json& root, const std::string& where) {
  if (!root.is_object() || !root.contains("format") || root["format"] != format_name)
    throw UserError(fmt::format("{}: is not the manifest of a checkpoint", where));
  if (!root.contains("version") || !root["version"].is_number_integer()) throw UserError(fmt::format("{}: has no format version", where));
  if (root["version"] != checkpoint_format_version)
    throw UserError(fmt::format("{}: checkpoint format version {}, this build reads version {}", where, root["version"].dump(), checkpoint_format_version));
}

}  // namespace

std::string print_manifest(const Manifest& manifest) {
  try {
    json root = body_of(manifest);
    root["checksum"] = checksum(root.dump(1));
    return root.dump(1) + "\n";
  } catch (const json::type_error&) {
    throw UserError("cannot write a checkpoint: a name or text in it is not valid UTF-8");
  }
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  check_json(text, where);
  const json root = json::parse(text);
  check_version(root, where);
  Manifest manifest;
  Fields fields(root, where);
  fields.text("format");
  fields.number("version");
  fields.text("checksum");
  manifest.step = fields.natural("step");
  manifest.module_hash = fields.text("module_hash");
  manifest.cursor = fields.text("cursor");
  manifest.seed = fields.number("seed", UINT64_MAX);
  manifest.extra = fields.texts("extra");
  for (const json& entry : fields.array("files")) manifest.files.push_back(parse_file(entry, where));
  for (const json& entry : fields.array("tensors")) manifest.tensors.push_back(parse_tensor(entry, where));
  fields.no_more();
  check_names(manifest.files, "file", where);
  check_names(manifest.tensors, "tensor", where);
  for (const ManifestTensor& tensor : manifest.tensors)
    if (std::none_of(manifest.files.begin(), manifest.files.end(), [&](const ManifestFile& file) { return file.name == tensor.file; }))
      throw UserError(fmt::format("{}: tensor {} is in {}, which is not among the files", where, quoted_name(tensor.name), quoted_name(tensor.file)));
  // The text is a function of what it says, its own checksum included: one comparison finds every changed bit.
  if (print_manifest(manifest) != text) throw UserError(fmt::format("{}: its checksum does not match, the file is damaged", where));
  return manifest;
}

}  // namespace stepgraph
