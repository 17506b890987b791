// SPDX-License-Identifier: Apache-2.0
// The verifier of plans: it knows the plan alone, none of the passes that made it. For given sizes it proves of each entry that
//   - forms are forms, and views and what forms touch lie within their buffers, buffers within an arena of whole granules;
//   - every byte is read as the buffer that wrote it last; inputs, states and constants count as written; outputs are there when the commit begins;
//   - constants and inputs are never written, states from the commit on only, and those that are written are the entry's new states; a state is read as the entry
//     found it, but in place and by what copies it to another state; nothing behind the beginning of the commit can fail by the data (held_indices.h);
//   - on several threads, what an instruction touches without a meeting before it, no other instruction since the last meeting writes, and what it writes none
//     touches, unless thread 0 runs both; no two launches of a call, operands of a launch, or pieces of a parallel repeat get in each other's way;
//   - collectives use axes that the mesh has, and come in one sequence on all ranks.
//
// A repeat of up to 16 iterations is run through. Of a longer one whose sizes are linear in its symbol the first, the second and the last iteration are, and what the
// others touch follows from the first two; else all. A private buffer of a parallel repeat is a memory of each thread's own, outside of the arena, without
// content at the start of a piece. A meeting inside of a piece has no meaning.
#pragma once
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// InternalError "plan: entry step, instruction 3.1 (matmul): ..." for the first fault. `sizes` gives values to the plan's symbols, but for derived ones; a coordinate that
/// has none is 0.
void verify(const StepPlan& plan, const SymbolValues& sizes);
/// Of each size symbol the largest value that the plan has room for.
SymbolValues largest_sizes(const StepPlan& plan);

}  // namespace stepgraph
