// SPDX-License-Identifier: Apache-2.0
// Runs a StepPlan on the cores of this process. Loading maps the arenas, loads the code and works out sizes; a run is a walk over a list in which nothing is
// looked up, locked or allocated, but for what an EvaluateCall does.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/program/step_plan.h"
#include "stepgraph/run/comm/mesh_binding.h"
#include "stepgraph/run/device/code_loader.h"
#include "stepgraph/run/executor/executor.h"
#include "stepgraph/run/executor/trace.h"

namespace stepgraph {

/// The outputs of an EvaluateCall's program.
using EvaluateProgram = std::function<std::vector<Literal>(std::vector<Literal> inputs, const SymbolValues& symbols)>;
/// Makes the forms' code callable: load_code of run/device/code_loader.h, or functions of a test.
using LoadCode = std::function<std::unique_ptr<LoadedCode>(std::span<const FormCode>)>;
struct PlanExecutorOptions {
  /// Reads the text of an EvaluateCall, once, when the plan is loaded. The executor knows no compiler: whoever has one gives this.
  std::function<EvaluateProgram(const std::string& program)> read_program;
  LoadCode load_code;
  /// What Executor::find_non_finite asks, since a plan does not know the operations that it was made of. Without it nothing more is found out.
  std::function<void(std::string_view entry, const EntryInputs& inputs, const std::function<Literal(std::string_view state)>& read_state)> find_non_finite;
  /// The arena is filled with NaN before each run, and every buffer again after its last use: what reads before it writes shows.
  bool poison = false;
  /// Buffers share no memory, and what lies between them must stay as it is: what writes beside its buffer is an InternalError.
  bool canaries = false;
  TraceSink trace;  ///< empty: runs read no clock
};

/// `plan` holds code for this host's Target; UserError if it does not, or if this host cannot run it. `binding` outlives the executor.
std::unique_ptr<Executor> plan_executor(std::shared_ptr<const StepPlan> plan, const MeshBinding& binding, PlanExecutorOptions options);

/// What each thread holds for kernels and calls of libraries besides the arena, for batches of these sizes, on the first rank.
size_t thread_scratch_bytes(const StepPlan& plan, const PlanEntry& entry, const SymbolValues& sizes);

}  // namespace stepgraph
