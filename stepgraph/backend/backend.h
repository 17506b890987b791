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
#include "stepgraph/program/tuning.h"
#include "stepgraph/run/comm/mesh_binding.h"
#include "stepgraph/run/executor/executor.h"
#include "stepgraph/run/executor/trace.h"
#include "stepgraph/tensor/size_ranges.h"

namespace stepgraph {

class CompileCache;
struct GivenPlan;

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
  SizeRanges sizes = {};    ///< how far sizes go and for which points memory is planned; what is outside is an error
  bool fullgraph = false;   ///< an operation that only the interpreter can run because sizes are symbols is an error that names it
  std::vector<std::string> skip = {};  ///< optional passes: those of plan_passes()
  TraceSink trace = {};                ///< empty: none
  Tuning tuning = {};                  ///< recorded choices of libraries
  double tune_seconds = 0;             ///< at most this long the products of a new plan that have no record are measured
  std::function<void(const Tuning&)> tuned = {};  ///< is told the record whenever something was measured
  bool flush_denormals = false;                   ///< numbers below the smallest normal one are zero, in every back end
  std::shared_ptr<CompileCache> cache = {};       ///< of plans and code (cache/compile_cache.h); null: none
  std::shared_ptr<const GivenPlan> plan = {};     ///< what runs, made before (given_plan.h); null: it is made. What does not fit it is an error.
  bool poison = false;                 ///< memory that nothing has written, or that nothing reads any more, is NaN: for tests
  bool canaries = false;               ///< buffers lie apart, and what is between them must stay as it is: for tests
  /// Patterns of values (passes/tap.h) that become results besides, EntryResults::taps: of the entry step, or of all where there is none. Other bits stay.
  std::vector<std::string> taps = {};
  std::function<void(StepPlan&)> change_plan = {};  ///< of each plan before it is loaded: for tests
  MemoryBudget memory_budget = {};     ///< of a rank; values of forward are made again for backward where they do not fit
  std::function<void(const StepPlan&)> loaded = {};  ///< called by each rank once it has a plan and nothing else: before any state is touched
};

/// The largest sizes to make room for: those that are announced, else the smallest, up to their bucket points. UserError for size ranges that do not fit the symbols.
void announce_rest(BackendOptions& options, const SymbolTable& symbols);
/// This host as these options take it.
Target target_of(const BackendOptions& options, int ranks);
/// This machine, for one of `ranks` ranks on it. UserError without AVX2.
Target host_target(int threads, int ranks);
/// The passes that BackendOptions::skip may name, in their order.
const std::vector<std::string>& plan_passes();
/// Names of optional passes by who runs them: CompileOptions::skip, BackendOptions::skip. UserError for another.
struct SkippedPasses {
  std::vector<std::string> compile, plan;
};
SkippedPasses skipped_passes(const std::vector<std::string>& names);
/// Passes of flat_pass_names() that these options leave out.
std::vector<std::string> flat_passes_left_out(const BackendOptions& options);
struct PlanReport;
/// What kernels are made of: flat, rewritten, with taps. `log` may be null, here and below.
Module kernel_module(Module local, const BackendOptions& options, PassLog* log);
/// Of a module of that kind, with the code that the cache of the options has. UserError for one that has no plan, or
/// none within the memory budget, saying why. `report` (backend/fit_budget.h), if any, tells how it came about; then all is planned that a budget may choose from.
StepPlan plan_of_kernels(const Module& kernels, const BackendOptions& options, const Target& target, PassLog* log, PlanReport* report = nullptr);
/// Both; or the plan that is given, or that the cache has where no report is wanted.
StepPlan compile_plan(const Module& local, const BackendOptions& options, const Target& target, PassLog* log, PlanReport* report = nullptr);
/// Of what chooses numbers: the program that kernels are made of, the instructions that they are made of, which library makes which product and how it is cut. Equal
/// hashes mean equal bits. 32 digits.
std::string freeze_hash(const Module& kernels, const StepPlan& plan, const Tuning& tuning);
/// The plan's proof (program/verify_plan.h) at the largest sizes that it has room for.
void verify_at_largest(const StepPlan& plan);

/// An executor for each rank of a mesh; ranks of one module share its plan. The module and the binding outlive the executors.
using MakeExecutor = std::function<std::unique_ptr<Executor>(const Module& local, const MeshBinding& binding)>;
/// `log`, if any, outlives the executors: passes are added as plans are made.
MakeExecutor make_executors(const BackendOptions& options, PassLog* log = nullptr);

}  // namespace stepgraph
