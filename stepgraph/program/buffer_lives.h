// SPDX-License-Identifier: Apache-2.0
// From where to where the buffers of an entry's arena live, by the views of its instructions alone, and how many bytes of them live at once.
#pragma once
#include <cstdint>
#include <vector>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

struct BufferLife {
  int buffer = 0;
  int first = 0, last = -1;  ///< moments; a buffer that is only an output has last = the number of moments
  int64_t bytes = 0;
};
/// An instruction that is no Repeat, in the order of a run; those of a Repeat's body come once.
struct PlanMoment {
  const Instruction* instruction = nullptr;
  std::vector<int> at;  ///< its index; in a Repeat that of the Repeat before it
};
struct BufferLives {
  std::vector<BufferLife> lives;  ///< of the arena's buffers that anything touches, by buffer
  std::vector<PlanMoment> moments;
};
/// A buffer lives from the first instruction that touches it to the last one, or to the end if it is an output. One that is touched in one body alone lives
/// between its touches there: nothing is left for the next iteration. What is touched outside as well lives through all of the repeat.
BufferLives arena_lives(const PlanEntry& entry);

/// What a buffer takes of an arena: at least a line of the cache, and whole ones.
int64_t arena_room(int64_t bytes);
/// The most that lives at one moment: no arena can be smaller.
struct LivePeak {
  int moment = 0;
  int64_t bytes = 0;
};
LivePeak live_bytes_peak(const BufferLives& lives);

}  // namespace stepgraph
