// SPDX-License-Identifier: Apache-2.0
// A module and its plan, made when the sizes of the first batch are known, and the executor of one rank that runs it.
#pragma once
#include <memory>
#include <mutex>
#include "stepgraph/backend/backend.h"

namespace stepgraph {

/// Shared by the ranks of one module.
class CompiledModule {
 public:
  /// `module` outlives this.
  CompiledModule(const Module& module, BackendOptions options, const Target& target, PassLog* log);
  /// A plan with room for these sizes: the one that is there, or a new one.
  std::shared_ptr<const StepPlan> plan_for(const SymbolValues& sizes);
  const Module& module() const { return module_; }
  const BackendOptions& options() const { return options_; }

 private:
  const Module& module_;
  BackendOptions options_;
  Target target_;
  PassLog* log_;
  std::mutex mutex_;
  std::shared_ptr<const StepPlan> plan_;
};

/// One that runs a plan as it is.
std::unique_ptr<Executor> load_plan(std::shared_ptr<const StepPlan> plan, const MeshBinding& binding, const BackendOptions& options);
std::unique_ptr<Executor> compiled_executor(std::shared_ptr<CompiledModule> compiled, const MeshBinding& binding);

}  // namespace stepgraph
