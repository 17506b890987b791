// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/reference/reference_executor.h"

#include <algorithm>

#include "stepgraph/base/float_mode.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/run/executor/finite.h"
#include "stepgraph/run/executor/results.h"

namespace stepgraph {
namespace {

class ReferenceExecutor : public Executor {
 public:
  ReferenceExecutor(const Module& local, const MeshBinding& binding, bool flush_denormals)
      : module_(local), binding_(binding), flush_denormals_(flush_denormals) {
    SG_CHECK(local.stage == Stage::Local, "an executor wants a local module");
  }

  void connect(Communicator& group) override {
    group_ = &group;
    interpreter_ = std::make_unique<Interpreter>(module_, group, binding_);
  }

  EntryResults run(std::string_view entry, const EntryInputs& inputs) override {
    SG_CHECK(interpreter_ != nullptr, "an executor runs before it is connected");
    const FloatMode mode(flush_denormals_);
    new_state_.clear();
    const GraphId id = module_.entry(entry);
    const Graph& graph = module_.graph(id);
    std::vector<Literal> outputs = interpreter_->run(id, arguments(graph, inputs), inputs.sizes);
    peak_bytes_ = std::max(peak_bytes_, interpreter_->peak_bytes());
    EntryResults results;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Role& role = graph.outputs[i].role;
      if (role.kind == RoleKind::NewState)
        take_state(role.name, std::move(outputs[i]), results);
      else
        take_result(role, std::move(outputs[i]), results);
    }
    return results;
  }

  std::optional<std::string> commit() override {
    for (auto& [name, value] : new_state_) state_[name] = std::move(value);
    new_state_.clear();
    return std::nullopt;  // the run has told
  }

  void find_non_finite(std::string_view entry, const EntryInputs& inputs) override {
    const FloatMode mode(flush_denormals_);
    Interpreter watched(module_, *group_, binding_, {stop_at_first_non_finite()});
    const GraphId id = module_.entry(entry);
    watched.run(id, arguments(module_.graph(id), inputs), inputs.sizes);
  }

  Literal read_state(std::string_view name) const override {
    const auto found = state_.find(name);
    SG_CHECK(found != state_.end(), "state " + std::string(name) + " has no value");
    return found->second;
  }
  void write_state(std::string_view name, Literal part) override {
    SG_CHECK(module_.states.find(name) != nullptr, "the program has no state " + std::string(name));
    state_.insert_or_assign(std::string(name), std::move(part));
  }
  int64_t peak_bytes() const override { return peak_bytes_; }

 private:
  std::vector<Literal> arguments(const Graph& graph, const EntryInputs& inputs) const {
    std::vector<Literal> values;
    for (const GraphInput& input : graph.inputs) {
      const Role& role = input.role;
      if (is_state(role.kind)) {
        values.push_back(read_state(role.name));
      } else if (role.kind == RoleKind::Batch) {
        values.push_back(inputs.batch.at(role.name));
      } else if (role.kind == RoleKind::Seed || role.kind == RoleKind::Step) {
        values.push_back(Literal::integer(DType::I64, role.kind == RoleKind::Seed ? inputs.seed : inputs.step));
      } else {
        throw UserError("an input of role " + std::string(name(role.kind)) + " named '" + role.name + "' cannot be given in training");
      }
    }
    return values;
  }

  void take_state(const std::string& name, Literal value, EntryResults& results) {
    if (module_.states.find(name) == nullptr) return;  // that `init` makes and no entry takes
    const auto before = state_.find(name);
    if (!results.non_finite_state && before != state_.end() && !all_finite(value) && all_finite(before->second)) results.non_finite_state = name;
    new_state_.insert_or_assign(name, std::move(value));
  }

  using Values = std::map<std::string, Literal, std::less<>>;
  const Module& module_;
  const MeshBinding& binding_;
  Communicator* group_ = nullptr;
  std::unique_ptr<Interpreter> interpreter_;
  Values state_, new_state_;
  bool flush_denormals_;
  int64_t peak_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executor> reference_executor(const Module& local, const MeshBinding& binding, bool flush_denormals) {
  return std::make_unique<ReferenceExecutor>(local, binding, flush_denormals);
}

}  // namespace stepgraph
