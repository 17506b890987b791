// SPDX-License-Identifier: Apache-2.0
// What a run did when: for those who look, nothing steers by it.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// A thread's part of an instruction, or its waiting for the others (no instruction). Times are of one clock, since its start.
struct TraceSlice {
  const Instruction* instruction = nullptr;
  int thread = 0;
  int64_t start_ns = 0, end_ns = 0;
  double bytes = 0, flops = 0;  ///< of this slice: its part of what the instruction moves and computes (program/instruction_work.h)
};
/// After each run of an entry (`is_commit`: of its second part), by thread and time; the slices live as long as the call. Of a rank, on its thread.
using TraceSink = std::function<void(std::string_view entry, bool is_commit, std::span<const TraceSlice> slices)>;

}  // namespace stepgraph
