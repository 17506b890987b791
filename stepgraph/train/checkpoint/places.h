// SPDX-License-Identifier: Apache-2.0
// Names in a checkpoint directory, and their order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/base/disk.h"

namespace stepgraph {

/// "step-00000010", or "step-00000010.2" for the second of that step.
struct CheckpointName {
  int64_t step = 0;
  int64_t attempt = 1;
  auto operator<=>(const CheckpointName&) const = default;
  std::string text() const;
};
std::optional<CheckpointName> parse_checkpoint_name(std::string_view text);
/// All in the directory, ascending; empty if there is no such directory.
std::vector<CheckpointName> list_checkpoints(const Disk& disk, const std::string& directory);
/// `all` from the most to the least wanted when `newest` is the current one: itself, earlier ones back in time, then later ones (left by a run
/// that was since resumed from an earlier step).
std::vector<CheckpointName> by_preference(std::vector<CheckpointName> all, const CheckpointName& newest);

inline constexpr std::string_view temporary_prefix = ".tmp-";
/// The content of the file `latest`: the name and a checksum of it.
std::string print_latest(const CheckpointName& name);
/// UserError if it is damaged.
CheckpointName parse_latest(std::string_view text, const std::string& where);

}  // namespace stepgraph
