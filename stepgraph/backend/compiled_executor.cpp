// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/compiled_executor.h"

#include <algorithm>
#include <utility>

#include "stepgraph/compile/ir/text.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/reference/reference_executor.h"
#include "stepgraph/run/device/code_loader.h"
#include "stepgraph/run/executor/plan_executor.h"

namespace stepgraph {
namespace {

/// An EvaluateCall's program with the module that it walks.
EvaluateProgram read_program(const std::string& text) {
  auto module = std::make_shared<const Module>(parse_module(text));
  auto interpreter = std::make_shared<Interpreter>(*module);
  const GraphId main = module->entry("main");
  return [module, interpreter, main](std::vector<Literal> inputs, const SymbolValues& symbols) { return interpreter->run(main, std::move(inputs), symbols); };
}

/// States are kept across plans: a larger batch than any before gets a plan with larger arenas.
class CompiledExecutor : public Executor {
 public:
  CompiledExecutor(std::shared_ptr<CompiledModule> compiled, const MeshBinding& binding) : compiled_(std::move(compiled)), binding_(binding) {}

  void connect(Communicator& group) override {
    group_ = &group;
    if (executor_) executor_->connect(group);
  }

  EntryResults run(std::string_view entry, const EntryInputs& inputs) override {
    use_plan(compiled_->plan_for(inputs.sizes));
    return executor_->run(entry, inputs);
  }
  std::optional<std::string> commit() override { return executor_->commit(); }

  /// By the oracle, which knows the operations.
  void find_non_finite(std::string_view entry, const EntryInputs& inputs) override {
    const auto oracle = reference_executor(compiled_->module(), binding_);
    oracle->connect(*group_);
    for (const StateInfo& state : compiled_->module().states) oracle->write_state(state.name, read_state(state.name));
    oracle->find_non_finite(entry, inputs);
  }

  Literal read_state(std::string_view name) const override {
    SG_CHECK(executor_ != nullptr, "state " + std::string(name) + " has no value");
    return executor_->read_state(name);
  }
  void write_state(std::string_view name, Literal part) override {
    if (!executor_) use_plan(compiled_->plan_for({}));
    executor_->write_state(name, std::move(part));
  }
  int64_t peak_bytes() const override { return std::max(peak_bytes_, executor_ ? executor_->peak_bytes() : 0); }

 private:
  void use_plan(std::shared_ptr<const StepPlan> plan) {
    if (plan == plan_) return;
    PlanExecutorOptions options;
    options.read_program = read_program;
    options.load_code = load_code;
    options.poison = compiled_->options().poison;
    options.trace = compiled_->options().trace;
    auto next = plan_executor(plan, binding_, options);
    if (!executor_ && compiled_->options().loaded) compiled_->options().loaded(*plan);
    if (group_ != nullptr) next->connect(*group_);
    if (executor_) {
      for (const PlanState& state : plan->states) next->write_state(state.name, executor_->read_state(state.name));
      peak_bytes_ = std::max(peak_bytes_, executor_->peak_bytes());
    }
    executor_ = std::move(next);
    plan_ = std::move(plan);
  }

  std::shared_ptr<CompiledModule> compiled_;
  const MeshBinding& binding_;
  Communicator* group_ = nullptr;
  std::shared_ptr<const StepPlan> plan_;
  std::unique_ptr<Executor> executor_;
  int64_t peak_bytes_ = 0;
};

}  // namespace

CompiledModule::CompiledModule(const Module& module, BackendOptions options, const Target& target, PassLog* log)
    : module_(module), options_(std::move(options)), target_(target), log_(log) {
  for (const Symbol& symbol : module.symbols.all())
    if (symbol.kind == SymbolKind::Size && !options_.largest.contains(symbol.name) && symbol.maximum == INT64_MAX) options_.largest[symbol.name] = symbol.minimum;
}

std::shared_ptr<const StepPlan> CompiledModule::plan_for(const SymbolValues& sizes) {
  const std::lock_guard lock(mutex_);
  bool fits = plan_ != nullptr;
  for (const auto& [symbol, value] : sizes) {
    const auto found = options_.largest.find(symbol);
    if (found == options_.largest.end() || found->second >= value) continue;
    found->second = value;
    fits = false;
  }
  if (!fits) plan_ = std::make_shared<const StepPlan>(compile_plan(module_, options_, target_, log_));
  return plan_;
}

std::unique_ptr<Executor> compiled_executor(std::shared_ptr<CompiledModule> compiled, const MeshBinding& binding) {
  return std::make_unique<CompiledExecutor>(std::move(compiled), binding);
}

}  // namespace stepgraph
