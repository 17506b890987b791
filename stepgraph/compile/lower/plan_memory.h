// SPDX-License-Identifier: Apache-2.0
// Places for the buffers of an entry's arena. A buffer lives from the first instruction that touches it to the last one, or to the end if it is an output; two that
// live at once do not overlap. Best fit in several orders, of which the smallest arena is taken (after Sekiyama et al., "Profile-guided memory optimization for
// deep neural networks", 2018). The arena is rounded up to the Target's granularity: exactly what is mapped. Class: exact.
#pragma once
#include <cstdint>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

struct MemoryReport {
  int64_t lower_bound_bytes = 0;  ///< most bytes that live at one instruction
  int64_t arena_bytes = 0;
};
/// Sizes are the most that `symbols` allow. UserError naming a size without a maximum.
MemoryReport plan_memory(PlanEntry& entry, const SymbolTable& symbols, const Target& target);

}  // namespace stepgraph
