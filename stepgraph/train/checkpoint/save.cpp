// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <algorithm>
#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/base/printable.h"
#include "stepgraph/train/checkpoint/checkpoint.h"
#include "stepgraph/train/checkpoint/manifest.h"
#include "stepgraph/train/checkpoint/places.h"

namespace stepgraph {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// A directory is durable only when each parent that got a new name is synced. Parents that were there before are synced too, as an earlier
/// writer may have stopped between the two; those may not be ours to open, so their errors do not count.
void make_durable_directory(Disk& disk, std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::vector<std::pair<std::string, bool>> parents;  // and whether it gets a new name
  for (std::string at = path; at != "/" && at != "."; at = parent_of(at)) parents.emplace_back(parent_of(at), !disk.exists(at));
  disk.make_directories(path);
  for (const auto& [parent, changed] : parents) {
    try {
      disk.sync_directory(parent);
    } catch (const SystemError&) {
      if (changed) throw;
    }
  }
}

void write_file(Disk& disk, const std::string& path, std::span<const std::byte> bytes) {
  const auto file = disk.create(path);
  file->append(bytes);
  file->sync();
  file->close();
}

/// The state by name, cut into files of bounded size.
std::vector<Safetensors> shards_of(const CheckpointData& data, int64_t shard_bytes) {
  NamedArrays sorted = data.state;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i].first == sorted[i - 1].first) throw UserError(fmt::format("cannot save the state {} twice", quoted_name(sorted[i].first)));
  std::vector<Safetensors> shards(1);
  int64_t used = 0;
  for (auto& entry : sorted) {
    const auto bytes = static_cast<int64_t>(entry.second.byte_count());
    if (used > 0 && bytes > shard_bytes - used) {
      shards.emplace_back();
      used = 0;
    }
    used += bytes;
    shards.back().arrays.push_back(std::move(entry));
  }
  return shards;
}

void write_content(Disk& disk, const std::string& folder, const CheckpointData& data, int64_t shard_bytes) {
  Manifest manifest{data.step, data.module_hash, data.cursor, data.seed, data.extra, {}, {}};
  const std::vector<Safetensors> shards = shards_of(data, shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? std::string("state.safetensors") : fmt::format("state-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    const std::vector<std::byte> bytes = print_safetensors(shards[i]);
    write_file(disk, folder + "/" + name, bytes);
    manifest.files.push_back({name, static_cast<int64_t>(bytes.size()), hash_bytes(bytes).text()});
    for (const auto& [tensor, value] : shards[i].arrays) manifest.tensors.push_back({tensor, value.dtype(), value.sizes(), name});
  }
  const std::string text = print_manifest(manifest);
  write_file(disk, folder + "/manifest.json", std::as_bytes(std::span(text)));
  disk.sync_directory(folder);
}

void remove_leftovers(Disk& disk, const std::string& directory) {
  for (const std::string& name : disk.list(directory))
    if (name.starts_with(temporary_prefix)) disk.remove_tree(directory + "/" + name);
}

/// Under a temporary name first: what keeps a checkpoint's name is never half removed.
void prune(Disk& disk, const std::string& directory, const CheckpointName& newest, int keep, std::vector<std::string>& messages) {
  const std::vector<CheckpointName> all = by_preference(list_checkpoints(disk, directory), newest);
  for (size_t i = static_cast<size_t>(keep); i < all.size(); ++i) {
    const std::string name = all[i].text();
    try {
      const std::string doomed = fmt::format("{}/{}old-{}", directory, temporary_prefix, name);
      disk.rename(directory + "/" + name, doomed);
      disk.remove_tree(doomed);
    } catch (const SystemError& error) {
      messages.push_back(fmt::format("the old checkpoint {} was not removed: {}", name, error.what()));
    }
  }
}

}  // namespace

void check_state_name(const std::string& name) {
  if (name != "__metadata__" && is_utf8(name)) return;
  throw UserError(fmt::format("state {}: a checkpoint cannot hold {}; give the parameter or buffer another name", quoted_name(name),
                              is_utf8(name) ? "this name, which .safetensors reserves" : "a name that is not UTF-8"));
}

SavedCheckpoint save_checkpoint(Disk& disk, const std::string& directory, const CheckpointData& data, const SaveOptions& options) {
  if (data.step < 0) throw UserError(fmt::format("cannot save a checkpoint of step {}", data.step));
  if (options.keep < 1) throw UserError(fmt::format("cannot keep {} checkpoints, wanted at least 1", options.keep));
  if (options.shard_bytes < 1) throw UserError(fmt::format("cannot write shards of {} bytes", options.shard_bytes));
  make_durable_directory(disk, directory);
  remove_leftovers(disk, directory);

  CheckpointName name{data.step, 1};
  for (const CheckpointName& other : list_checkpoints(disk, directory))
    if (other.step == data.step) name.attempt = std::max(name.attempt, other.attempt + 1);
  const std::string path = directory + "/" + name.text();
  const std::string temporary = fmt::format("{}/{}{}", directory, temporary_prefix, name.text());
  const std::string temporary_latest = fmt::format("{}/{}latest", directory, temporary_prefix);
  try {
    disk.make_directories(temporary);
    write_content(disk, temporary, data, options.shard_bytes);
    disk.rename(temporary, path);
    disk.sync_directory(directory);
    const std::string latest = print_latest(name);
    write_file(disk, temporary_latest, std::as_bytes(std::span(latest)));
    disk.rename(temporary_latest, directory + "/latest");
    disk.sync_directory(directory);
  } catch (const Error&) {
    // A full disk needs its room back. If even that fails, the next save cleans up.
    try {
      disk.remove_tree(temporary);
      disk.remove_tree(temporary_latest);
    } catch (const SystemError&) {
    }
    throw;
  }
  SavedCheckpoint saved{path, {}};
  prune(disk, directory, name, options.keep, saved.messages);
  return saved;
}

}  // namespace stepgraph
