// SPDX-License-Identifier: Apache-2.0
// A module and its plan, made when the sizes of the first batch are known, and the executor of one rank that runs it.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include "stepgraph/backend/backend.h"
#include "stepgraph/run/executor/plan_executor.h"

namespace stepgraph {

/// Shared by the ranks of one module. It is compiled once: code and instructions are for all sizes, and what larger sizes than any before change is where buffers lie.
class CompiledModule {
 public:
  /// `module` outlives this. UserError for size ranges that do not fit it.
  CompiledModule(const Module& module, BackendOptions options, const Target& target, PassLog* log);
  /// A plan with room for these sizes: the one that is there, or one with other places of buffers. UserError for sizes that were not announced, and with `fullgraph`
  /// for what cannot be compiled.
  std::shared_ptr<const StepPlan> plan_for(const SymbolValues& sizes);
  /// What a rank does to load the plan, as a part of the log: of each plan once, whichever rank is first.
  void load(const std::shared_ptr<const StepPlan>& plan, const std::function<void()>& work);
  const Module& module() const { return module_; }
  const BackendOptions& options() const { return options_; }

 private:
  bool make_room(const SymbolValues& sizes);

  const Module& module_;
  BackendOptions options_;
  Target target_;
  PassLog* log_;
  std::mutex mutex_;
  std::shared_ptr<const StepPlan> plan_, logged_;  // logged_: the last one that was loaded
};

/// One that runs a plan as it is. `load`: how its code is made callable, if not by load_code.
std::unique_ptr<Executor> load_plan(std::shared_ptr<const StepPlan> plan, const MeshBinding& binding, const BackendOptions& options, LoadCode load = {});
std::unique_ptr<Executor> compiled_executor(std::shared_ptr<CompiledModule> compiled, const MeshBinding& binding);

}  // namespace stepgraph
