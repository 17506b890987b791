// SPDX-License-Identifier: Apache-2.0
// How much memory an instruction touches and how many operations it computes: what its time is measured by.
#pragma once
#include <cstdint>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

struct InstructionWork {
  double read = 0, written = 0;  ///< bytes; what is touched often counts once a buffer
  double flops = 0;              ///< a multiplication and an addition are two; any function of an element is one
};
/// `values`: of all symbols but those of a Repeat, which is taken at its first iteration, as often as it runs. UserError where a number leaves 64 bits.
InstructionWork instruction_work(const StepPlan& plan, const PlanEntry& entry, const Instruction& instruction, const SymbolValues& values);

}  // namespace stepgraph
