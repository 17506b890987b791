// SPDX-License-Identifier: Apache-2.0
// The ways to run a Local module: three lists of passes that give a plan, and the reference interpreter beside them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/backend/memory_budget.h"
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/passes/pass.h"
#include "stepgraph/program/step_plan.h"
#include "stepgraph/run/comm/mesh_binding.h"
#include "stepgraph/run/executor/executor.h"
#include "stepgraph/run/executor/trace.h"

namespace stepgraph {

enum class Backend : uint8_t {
  Eager,      ///< a kernel or a library call an operation
  Segment,    ///< fusion by fixed rules, without the rewrites of the whole step
  Full,       ///< everything
  Reference,  ///< the oracle: no plan at all
};
std::string_view name(Backend backend);
/// Also by the names aot_eager, nvfuser and inductor; nothing for another one.
std::optional<Backend> backend_from_name(std::string_view text);
/// Full where this build has code generation, else Reference.
Backend default_backend();

struct BackendOptions {
  Backend backend = default_backend();
  int threads = 0;  ///< of a rank; 0: as many as this machine has cores, shared among the ranks
  /// Largest sizes that will be met, by symbol. A larger one later means new arenas, not new code.
  std::map<std::string, int64_t, std::less<>> largest = {};
  std::vector<std::string> skip = {};  ///< optional passes: those of flat_pass_names(), recompute, fuse
  TraceSink trace = {};                ///< empty: none
  bool poison = false;                 ///< memory that nothing has written is NaN: for tests
  MemoryBudget memory_budget = {};     ///< of a rank; values of forward are made again for backward where they do not fit
  std::function<void(const StepPlan&)> loaded = {};  ///< called by each rank once it has a plan and nothing else: before any state is touched
};

/// This machine, for one of `ranks` ranks on it. UserError without AVX2.
Target host_target(int threads, int ranks);
struct BudgetReport;
/// `log` and `report` (backend/fit_budget.h) may be null; with a report all is planned that a memory budget may choose from. UserError for a module that has no
/// plan, or none within the budget, saying why.
StepPlan compile_plan(Module local, const BackendOptions& options, const Target& target, PassLog* log, BudgetReport* report = nullptr);

/// An executor for each rank of a mesh; ranks of one module share its plan. The module and the binding outlive the executors.
using MakeExecutor = std::function<std::unique_ptr<Executor>(const Module& local, const MeshBinding& binding)>;
/// `log`, if any, outlives the executors: passes are added as plans are made.
MakeExecutor make_executors(const BackendOptions& options, PassLog* log = nullptr);

}  // namespace stepgraph
