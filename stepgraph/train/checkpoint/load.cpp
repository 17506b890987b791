// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <algorithm>
#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/train/checkpoint/checkpoint.h"
#include "stepgraph/train/checkpoint/manifest.h"
#include "stepgraph/train/checkpoint/places.h"

namespace stepgraph {
namespace {

constexpr int64_t manifest_bytes_max = int64_t{256} << 20;
constexpr int64_t latest_bytes_max = 4096;

/// Damage that the disk itself reports is told like any other.
template <class Function>
auto as_user_error(const Function& function) {
  try {
    return function();
  } catch (const SystemError& error) {
    throw UserError(error.what());
  }
}

Manifest read_manifest(const Disk& disk, const std::string& path) {
  const std::string file = path + "/manifest.json";
  if (!disk.exists(file)) throw UserError(fmt::format("{}: is missing", file));
  return parse_manifest(disk.read_text(file, manifest_bytes_max), file);
}

Safetensors read_shard(const Disk& disk, const std::string& path, const ManifestFile& entry) {
  const std::string file = path + "/" + entry.name;
  if (!disk.exists(file)) throw UserError(fmt::format("{}: is missing", file));
  const int64_t bytes = disk.file_size(file);
  if (bytes != entry.bytes) throw UserError(fmt::format("{}: {} bytes, the manifest says {}", file, bytes, entry.bytes));
  const std::vector<std::byte> content = disk.read(file, entry.bytes);
  const std::string checksum = hash_bytes(content).text();
  if (checksum != entry.checksum)
    throw UserError(fmt::format("{}: checksum {}, the manifest says {}: the file is damaged", file, checksum, quoted_name(entry.checksum)));
  return parse_safetensors(content, file);
}

/// The tensors of one shard against the manifest's table.
void check_tensors(const Safetensors& shard, const Manifest& manifest, const ManifestFile& entry, const std::string& path) {
  const std::string file = path + "/" + entry.name;
  size_t listed = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.file != entry.name) continue;
    ++listed;
    const Literal* value = find_array(shard.arrays, tensor.name);
    if (!value) throw UserError(fmt::format("{}: tensor {} is missing, which the manifest lists", file, quoted_name(tensor.name)));
    if (value->dtype() != tensor.dtype || value->sizes() != tensor.sizes)
      throw UserError(fmt::format("{}: tensor {} is {}, the manifest says {}", file, quoted_name(tensor.name), type_text(value->dtype(), value->sizes()),
                                  type_text(tensor.dtype, tensor.sizes)));
  }
  if (listed != shard.arrays.size()) throw UserError(fmt::format("{}: {} tensors, the manifest lists {}", file, shard.arrays.size(), listed));
}

CheckpointData load_verified(const Disk& disk, const std::string& path) {
  Manifest manifest = read_manifest(disk, path);
  CheckpointData data{manifest.step, manifest.module_hash, manifest.cursor, manifest.seed, manifest.extra, {}};
  for (const ManifestFile& entry : manifest.files) {
    Safetensors shard = read_shard(disk, path, entry);
    check_tensors(shard, manifest, entry, path);
    std::move(shard.arrays.begin(), shard.arrays.end(), std::back_inserter(data.state));
  }
  std::sort(data.state.begin(), data.state.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return data;
}

void check_module(const CheckpointData& data, const std::string& path, const std::string& module_hash) {
  if (module_hash.empty() || data.module_hash == module_hash) return;
  throw UserError(fmt::format("{}: was saved by the module {}, this run has {}: model, optimizer or step options differ", path, quoted_name(data.module_hash), module_hash));
}

/// The order in which to try what is there.
std::vector<CheckpointName> candidates(const Disk& disk, const std::string& directory, std::vector<std::string>& messages) {
  std::vector<CheckpointName> all = list_checkpoints(disk, directory);
  if (all.empty()) return all;
  CheckpointName newest = all.back();
  const std::string file = directory + "/latest";
  if (disk.exists(file)) {
    try {
      const CheckpointName named = as_user_error([&] { return parse_latest(disk.read_text(file, latest_bytes_max), file); });
      newest = named;
      if (!std::binary_search(all.begin(), all.end(), named)) messages.push_back(fmt::format("{}: names {}, which is not there", file, named.text()));
    } catch (const UserError& error) {
      messages.emplace_back(error.what());
    }
  }
  return by_preference(std::move(all), newest);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : "; ") + line;
  return out;
}

/// "'a' f32[2], 'b' f32[3] and 4 more"
std::string listed(const std::vector<std::string>& entries) {
  constexpr size_t shown_max = 8;
  std::string out;
  for (size_t i = 0; i < std::min(entries.size(), shown_max); ++i) out += (i ? ", " : "") + entries[i];
  if (entries.size() > shown_max) out += fmt::format(" and {} more", entries.size() - shown_max);
  return out;
}

}  // namespace

CheckpointData load_checkpoint(const Disk& disk, const std::string& path, const std::string& module_hash) {
  CheckpointData data = as_user_error([&] {
    if (!disk.is_directory(path)) throw UserError(fmt::format("{}: is not a directory, wanted a checkpoint", path));
    return load_verified(disk, path);
  });
  check_module(data, path, module_hash);
  return data;
}

LoadedCheckpoint load_latest(const Disk& disk, const std::string& directory, const std::string& module_hash) {
  LoadedCheckpoint loaded;
  for (const CheckpointName& name : candidates(disk, directory, loaded.messages)) {
    loaded.path = directory + "/" + name.text();
    try {
      loaded.data = as_user_error([&] { return load_verified(disk, loaded.path); });
      if (loaded.data.step != name.step)
        throw UserError(fmt::format("{}/manifest.json: is of step {}, not of the step that the folder names", loaded.path, loaded.data.step));
    } catch (const UserError& error) {
      loaded.messages.emplace_back(error.what());
      continue;
    }
    // Not damage: an older checkpoint of the right module would silently be another run.
    check_module(loaded.data, loaded.path, module_hash);
    return loaded;
  }
  if (loaded.messages.empty()) throw UserError(fmt::format("{}: has no checkpoint", directory));
  throw UserError(fmt::format("{}: has no good checkpoint: {}", directory, joined(loaded.messages)));
}

bool has_checkpoints(const Disk& disk, const std::string& directory) { return !list_checkpoints(disk, directory).empty(); }

NamedArrays match_state(std::span<const StateType> expected, NamedArrays loaded, const std::string& where) {
  std::map<std::string, Literal*> by_name;
  for (auto& [name, value] : loaded) by_name[name] = &value;
  NamedArrays matched;
  std::vector<std::string> missing, different, unexpected;
  for (const StateType& type : expected) {
    const auto found = by_name.find(type.name);
    if (found == by_name.end()) {
      missing.push_back(fmt::format("{} {}", quoted_name(type.name), type_text(type.dtype, type.sizes)));
      continue;
    }
    Literal& value = *found->second;
    if (value.dtype() != type.dtype || value.sizes() != type.sizes)
      different.push_back(
          fmt::format("{} is {}, wanted {}", quoted_name(type.name), type_text(value.dtype(), value.sizes()), type_text(type.dtype, type.sizes)));
    matched.emplace_back(type.name, std::move(value));
    by_name.erase(found);
  }
  for (const auto& [name, value] : by_name) unexpected.push_back(fmt::format("{} {}", quoted_name(name), type_text(value->dtype(), value->sizes())));
  std::vector<std::string> parts;
  if (!missing.empty()) parts.push_back("missing " + listed(missing));
  if (!unexpected.empty()) parts.push_back("unexpected " + listed(unexpected));
  if (!different.empty()) parts.push_back(listed(different));
  if (!parts.empty()) throw UserError(fmt::format("{}: its state does not match the module: {}", where, joined(parts)));
  return matched;
}

}  // namespace stepgraph
