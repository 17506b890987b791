// SPDX-License-Identifier: Apache-2.0
// From a flat Local module to a StepPlan: groups become forms, other nodes calls; what replaces states is put behind the point of commit (unit_order.h), in place where
// nothing else reads the old value afterwards; buffers get their places. A pure function of its arguments.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/lower/lower_report.h"
#include "stepgraph/program/step_plan.h"
#include "stepgraph/program/tuning.h"

namespace stepgraph {

struct LowerOptions {
  Target target;
  /// The most that a size symbol will be, below its declared maximum: the arenas are made for it.
  std::map<std::string, int64_t, std::less<>> largest;
  bool fuse = true;
  Tuning tuning;  ///< choices of libraries for products
};

/// The module's symbols with what is known of their maxima.
SymbolTable narrowed_symbols(const SymbolTable& symbols, const std::map<std::string, int64_t, std::less<>>& largest);
/// Every entry of the module, without machine code. UserError naming a size without a maximum. `report` may be null.
StepPlan lower_to_plan(const Module& module, const LowerOptions& options, LowerReport* report = nullptr);
/// Machine code of each form that has none yet. Returns their numbers.
std::vector<size_t> emit_code(StepPlan& plan);
/// The plan with room for other largest sizes: buffers get other places; instructions, forms and code stay. `symbols` are those of the module it was made of.
void plan_room(StepPlan& plan, const SymbolTable& symbols, const std::map<std::string, int64_t, std::less<>>& largest);

}  // namespace stepgraph
