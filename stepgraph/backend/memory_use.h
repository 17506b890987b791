// SPDX-License-Identifier: Apache-2.0
// Where the memory of a plan goes, for people: states, constants, and of each entry its arena, what lives at its peak, and what forward keeps for backward.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/program/buffer_lives.h"
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// A buffer of an arena, and the instruction that writes it first.
struct ArenaValue {
  BufferLife life;
  int64_t offset = 0;
  std::string label, scope;  ///< the operation; the layer
  Phase phase = Phase::None;
  int written = 0;          ///< moment
  bool is_kept = false;     ///< written in forward, read in backward or later
  bool is_output = false;   ///< of the entry
};
struct KeptLayer {
  std::string scope;
  int64_t bytes = 0, values = 0;
};
struct EntryMemory {
  std::string name;
  int64_t arena_bytes = 0;  ///< what is mapped: `used_bytes` rounded up to the Target's granularity
  int64_t used_bytes = 0;   ///< where the last buffer ends
  int64_t input_bytes = 0;  ///< of batches, at their largest; the caller's
  int64_t scratch_bytes = 0;  ///< of one thread: what kernels and calls of libraries want
  LivePeak peak;            ///< no arena can be smaller
  std::vector<PlanMoment> moments;
  std::vector<ArenaValue> values;  ///< by first moment
  std::vector<KeptLayer> kept;     ///< largest first
  int64_t kept_bytes = 0;
};
struct MemoryUse {
  std::vector<std::pair<RoleKind, int64_t>> states;  ///< bytes by role, those that there are
  int64_t constant_bytes = 0;
  std::vector<EntryMemory> entries;
};
/// Sizes are the most that the plan was made for. The plan outlives the result.
MemoryUse memory_use(const StepPlan& plan);

/// "form 3", "matmul", "evaluate", ...
std::string kind_text(const InstructionOp& op);
/// The instruction at a place as PlanMoment::at.
const Instruction& instruction_at(const PlanEntry& entry, const std::vector<int>& at);
/// "12", "12.3"
std::string place_text(const std::vector<int>& at);

}  // namespace stepgraph
