// SPDX-License-Identifier: Apache-2.0
// What an instruction reads and writes, how much memory that is, and how many operations it computes: what its time is measured by.
#pragma once
#include <cstdint>
#include <functional>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// Each view of an instruction that is no Repeat, and whether it is written; what is both is told twice.
void for_each_access(const StepPlan& plan, const InstructionOp& op, const std::function<void(const View&, DType, bool is_write)>& visit);

struct InstructionWork {
  double read = 0, written = 0;  ///< bytes; what is touched often counts once a buffer
  double flops = 0;              ///< a multiplication and an addition are two; any function of an element is one
};
/// `values`: of all symbols but those of a Repeat, which is taken at its first iteration, as often as it runs. UserError where a number leaves 64 bits.
InstructionWork instruction_work(const StepPlan& plan, const PlanEntry& entry, const Instruction& instruction, const SymbolValues& values);

}  // namespace stepgraph
