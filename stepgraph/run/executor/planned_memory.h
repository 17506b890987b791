// SPDX-License-Identifier: Apache-2.0
// What an executor maps for a plan, known of the plan alone.
#pragma once
#include <cstdint>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

struct PlannedMemory {
  int64_t states = 0, constants = 0;
  int64_t arena = 0;    ///< the largest of the entries: no two run at once
  int64_t threads = 0;  ///< private buffers of all threads but the first
  int64_t total() const { return states + constants + arena + threads; }
};
/// Sizes of states that differ from rank to rank are the most of any.
PlannedMemory planned_memory(const StepPlan& plan);

}  // namespace stepgraph
