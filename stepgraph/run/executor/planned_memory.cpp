// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/planned_memory.h"

#include <algorithm>

#include "stepgraph/run/executor/bound_entry.h"
#include "stepgraph/run/executor/mapping.h"

namespace stepgraph {
namespace {

/// As the executor places states and constants.
int64_t with_padding(int64_t bytes) { return static_cast<int64_t>(padded(static_cast<size_t>(bytes))); }

}  // namespace

PlannedMemory planned_memory(const StepPlan& plan) {
  PlannedMemory memory;
  for (const PlanState& state : plan.states)
    memory.states += with_padding(plan.symbols.bounds(element_count(state.sizes)).maximum * static_cast<int64_t>(size_bytes(state.dtype)));
  for (const Literal& constant : plan.constants) memory.constants += with_padding(static_cast<int64_t>(constant.byte_count()));
  for (const PlanEntry& entry : plan.entries) {
    memory.arena = std::max(memory.arena, entry.arena_bytes);
    memory.threads = std::max(memory.threads, static_cast<int64_t>(private_bytes(entry)) * (plan.target.threads - 1));
  }
  return memory;
}

}  // namespace stepgraph
