// SPDX-License-Identifier: Apache-2.0
// For tests: which memory of an arena means nothing any more, to be filled so that what reads before it writes shows; and arenas whose buffers lie apart, with
// canaries between them, so that what writes beside its buffer shows.
#pragma once
#include <cstddef>
#include <vector>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// By buffer: the first and the last of the entry's instructions that name it. Outputs are used by an instruction after the last; a buffer that none names has
/// -1.
struct BufferUses {
  std::vector<int> first, last;
};
BufferUses buffer_uses(const PlanEntry& entry);
/// Buffers of the arena whose last use is instruction `index`, and of whose bytes none holds anything that is used later.
std::vector<int> buffers_that_end(const PlanEntry& entry, const BufferUses& uses, int index);

/// The plan with a place of its own for each buffer of an arena, before and behind which are canary_bytes that belong to none.
constexpr int64_t canary_bytes = 256;
StepPlan with_canaries(StepPlan plan);
void write_canaries(const PlanEntry& entry, std::byte* arena);
/// InternalError that names the buffer beside which something was written.
void check_canaries(const PlanEntry& entry, const std::byte* arena);

}  // namespace stepgraph
