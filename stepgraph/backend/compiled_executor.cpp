// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/compiled_executor.h"

#include <algorithm>
#include <utility>

#include "stepgraph/backend/shapes_report.h"
#include "stepgraph/backend/timed_part.h"
#include "stepgraph/backend/tune_products.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/lower/lower.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/reference/reference_executor.h"
#include "stepgraph/run/device/code_loader.h"
#include "stepgraph/run/executor/plan_executor.h"
#include "stepgraph/run/executor/planned_memory.h"

namespace stepgraph {
namespace {

/// An EvaluateCall's program with the module that it walks.
EvaluateProgram read_program(const std::string& text) {
  auto module = std::make_shared<const Module>(parse_module(text));
  auto interpreter = std::make_shared<Interpreter>(*module);
  const GraphId main = module->entry("main");
  return [module, interpreter, main](std::vector<Literal> inputs, const SymbolValues& symbols) { return interpreter->run(main, std::move(inputs), symbols); };
}

/// Code that several plans call.
class SharedCode : public LoadedCode {
 public:
  explicit SharedCode(std::shared_ptr<const LoadedCode> code) : code_(std::move(code)) {}
  FormFunction function(size_t form) const override { return code_->function(form); }

 private:
  std::shared_ptr<const LoadedCode> code_;
};

/// States and code are kept across plans: a larger batch than any before gets a plan with larger arenas.
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
    const auto oracle = reference_executor(compiled_->module(), binding_, compiled_->options().flush_denormals);
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
    std::unique_ptr<Executor> next;
    compiled_->load(plan, [&] {
      next = load_plan(plan, binding_, compiled_->options(), [this](std::span<const FormCode> code) {
        if (!code_) code_ = load_code(code);
        return std::make_unique<SharedCode>(code_);
      });
    });
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
  std::shared_ptr<const LoadedCode> code_;
  std::unique_ptr<Executor> executor_;
  int64_t peak_bytes_ = 0;
};

}  // namespace

CompiledModule::CompiledModule(const Module& module, BackendOptions options, const Target& target, PassLog* log)
    : module_(module), options_(std::move(options)), target_(target), log_(log) {
  announce_rest(options_, module.symbols);
}

/// Whether the largest sizes had to grow.
bool CompiledModule::make_room(const SymbolValues& sizes) {
  check_sizes(options_.sizes, sizes);
  bool grows = false;
  for (const auto& [name, value] : sizes) {
    const Symbol* symbol = module_.symbols.find(name);
    const auto found = options_.largest.find(name);
    if (symbol == nullptr || found == options_.largest.end() || found->second >= value) continue;
    found->second = room_for(options_.sizes, *symbol, value);
    grows = true;
  }
  return grows;
}

std::shared_ptr<const StepPlan> CompiledModule::plan_for(const SymbolValues& sizes) {
  const std::lock_guard lock(mutex_);
  const bool grows = make_room(sizes);
  if (plan_ != nullptr && !grows) return plan_;
  if (plan_ == nullptr) {
    StepPlan plan = compile_plan(module_, options_, target_, log_);
    if (options_.tune_seconds > 0 && tune_products(plan, options_.tuning, options_.tune_seconds)) {
      choose_products(plan, options_.tuning);
      plan.freeze_hash = freeze_hash(kernel_module(module_, options_, nullptr), plan, options_.tuning);
      if (options_.tuned) options_.tuned(options_.tuning);
    }
    plan_ = std::make_shared<const StepPlan>(std::move(plan));
    if (options_.fullgraph) refuse_fallback(explain_shapes(module_, options_));
    return plan_;
  }
  TimedPart placing("plan_room", log_);
  StepPlan roomier = *plan_;
  plan_room(roomier, module_.symbols, options_.largest);
  verify_at_largest(roomier);
  const MemoryBudget& budget = options_.memory_budget;
  if (const int64_t bytes = planned_memory(roomier).total(); budget.kind == MemoryBudget::Kind::Bytes && bytes > budget.bytes)
    throw UserError("memory budget: found " + std::to_string(budget.bytes) + " bytes, wanted " + std::to_string(bytes) +
                    " for sizes larger than those that the plan was made for; announce them (--sizes)");
  plan_ = std::make_shared<const StepPlan>(std::move(roomier));
  placing.end(0, 0);
  return plan_;
}

std::unique_ptr<Executor> load_plan(std::shared_ptr<const StepPlan> plan, const MeshBinding& binding, const BackendOptions& options, LoadCode load) {
  PlanExecutorOptions how;
  how.read_program = read_program;
  how.load_code = load ? std::move(load) : load_code;
  how.poison = options.poison;
  how.canaries = options.canaries;
  how.trace = options.trace;
  return plan_executor(std::move(plan), binding, std::move(how));
}

void CompiledModule::load(const std::shared_ptr<const StepPlan>& plan, const std::function<void()>& work) {
  PassLog part;
  if (log_ != nullptr) part.clock_us = log_->clock_us;
  TimedPart loading("load", &part);
  work();
  loading.end(static_cast<int64_t>(plan->forms.size()), static_cast<int64_t>(plan->forms.size()));
  const std::lock_guard lock(mutex_);
  if (log_ == nullptr || plan == logged_) return;
  logged_ = plan;
  log_->passes.push_back(std::move(part.passes[0]));
}

std::unique_ptr<Executor> compiled_executor(std::shared_ptr<CompiledModule> compiled, const MeshBinding& binding) {
  return std::make_unique<CompiledExecutor>(std::move(compiled), binding);
}

}  // namespace stepgraph
