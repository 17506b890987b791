// SPDX-License-Identifier: Apache-2.0
// Which memory of an arena means nothing any more: tests fill it, so that what reads before it writes shows.
#pragma once
#include <vector>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// By buffer: the first and the last of the entry's instructions that name it. Outputs are used by an instruction after the last; a buffer that none names has -1.
struct BufferUses {
  std::vector<int> first, last;
};
BufferUses buffer_uses(const PlanEntry& entry);
/// Buffers of the arena whose last use is instruction `index`, and of whose bytes none holds anything that is used later.
std::vector<int> buffers_that_end(const PlanEntry& entry, const BufferUses& uses, int index);

}  // namespace stepgraph
