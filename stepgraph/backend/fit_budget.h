// SPDX-License-Identifier: Apache-2.0
// A plan within a memory budget: a fixed ladder of ways to run parts of forward again (compile/lower/rematerialize.h), each planned in full but for its machine
// code; of those that fit the one that is estimated to be fastest. The order does not depend on the budget, so a smaller budget never takes more memory.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>
#include "stepgraph/backend/memory_budget.h"
#include "stepgraph/compile/lower/lower.h"
#include "stepgraph/compile/lower/rematerialize.h"
#include "stepgraph/run/executor/planned_memory.h"

namespace stepgraph {

struct BudgetRung {
  std::optional<Rematerialization> how;  ///< nothing: all is kept that backward reads, but what is cheap to make again
  PlannedMemory memory;
  int64_t read_later_bytes = 0, kept_bytes = 0;  ///< of forward, by backward
  double seconds = 0;                            ///< estimated, more than without running anything again
};
/// What was planned, in order of time.
struct BudgetReport {
  std::vector<BudgetRung> rungs;
  size_t chosen = 0;
  int64_t budget_bytes = 0;  ///< 0: without end
};

/// How a plan came about.
struct PlanReport {
  LowerReport lower;    ///< of what is run
  BudgetReport budget;  ///< empty without one
};

/// A plan without machine code. `kept` is what is run where nothing but what is cheap is made again, the first rung; `flat` what the others are made of.
/// With `told` rungs behind the one that is taken are planned too. UserError for a budget that nothing fits, with the smallest plan found.
StepPlan plan_within(const MemoryBudget& budget, const Module& flat, const Module& kept, const LowerOptions& options, BudgetReport& report, PlanReport* told);

}  // namespace stepgraph
