// SPDX-License-Identifier: Apache-2.0
// Checkpoints that survive a crash at any moment. A directory holds
//     step-00000010/  manifest.json  state.safetensors (or several shards)
//     latest          the name of the newest complete one
// A checkpoint is written to a folder of another name, synced, and renamed as its last act: under its final name it is complete. What is read is
// verified whole (sizes, checksums, every tensor) before any of it is returned.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include "stepgraph/base/disk.h"
#include "stepgraph/train/data/arrays.h"

namespace stepgraph {

struct CheckpointData {
  int64_t step = 0;
  std::string module_hash;
  std::string cursor;  ///< JSON text of the data loader
  uint64_t seed = 0;
  std::map<std::string, std::string> extra;
  NamedArrays state;  ///< read back ordered by name
};

/// UserError for a name that files of weights and checkpoints cannot hold: better known before the first step than after the last.
void check_state_name(const std::string& name);

struct SaveOptions {
  int keep = 3;                              ///< newest ones that stay; at least 1
  int64_t shard_bytes = int64_t{256} << 20;  ///< a file holds at most this, or one tensor
};
struct SavedCheckpoint {
  std::string path;
  std::vector<std::string> messages;  ///< old ones that could not be removed
};
/// Throws SystemError when the disk fails; what was complete before stays complete. One writer a directory at a time: leftovers of a crashed one
/// are removed. A step that is there already is not touched: the new one gets a name of its own (step-00000010.2).
SavedCheckpoint save_checkpoint(Disk& disk, const std::string& directory, const CheckpointData& data, const SaveOptions& options = {});

struct LoadedCheckpoint {
  CheckpointData data;
  std::string path;
  std::vector<std::string> messages;  ///< a line for each damaged one that was passed over, naming its file
};
/// The one that `latest` names, or if it is damaged the next good one: first back in steps, then later ones. UserError if there is none, or if the
/// one found was saved by another module than `module_hash` (unless that is empty).
LoadedCheckpoint load_latest(const Disk& disk, const std::string& directory, const std::string& module_hash = "");
/// One checkpoint by its path. UserError naming the damaged file.
CheckpointData load_checkpoint(const Disk& disk, const std::string& path, const std::string& module_hash = "");
/// Whether the directory holds anything under a checkpoint's name, damaged or not.
bool has_checkpoints(const Disk& disk, const std::string& directory);

struct StateType {
  std::string name;
  DType dtype = DType::F32;
  Sizes sizes;
};
/// `loaded` in the order of `expected`, matched by name. One UserError lists everything missing, unexpected or of another type.
NamedArrays match_state(std::span<const StateType> expected, NamedArrays loaded, const std::string& where);

}  // namespace stepgraph
