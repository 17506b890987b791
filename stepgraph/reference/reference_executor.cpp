// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/reference/reference_executor.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "stepgraph/reference/interpreter.h"

namespace stepgraph {
namespace {

template <class T>
bool all_finite(std::span<const T> values) {
  return std::all_of(values.begin(), values.end(), [](T value) { return std::isfinite(value); });
}
bool all_finite(const Literal& value) {
  if (value.dtype() == DType::F32) return all_finite(value.as<float>());
  if (value.dtype() == DType::F64) return all_finite(value.as<double>());
  if (!is_floating(value.dtype())) return true;
  for (int64_t i = 0; i < value.count(); ++i)
    if (!std::isfinite(value.at(i))) return false;
  return true;
}

class ReferenceExecutor : public Executor {
 public:
  ReferenceExecutor(const Module& local, const MeshBinding& binding) : module_(local), binding_(binding) {
    SG_CHECK(local.stage == Stage::Local, "an executor wants a local module");
  }

  void connect(Communicator& group) override {
    group_ = &group;
    interpreter_ = std::make_unique<Interpreter>(module_, group, binding_);
  }

  EntryResults run(std::string_view entry, const EntryInputs& inputs) override {
    SG_CHECK(interpreter_ != nullptr, "an executor runs before it is connected");
    new_state_.clear();
    const GraphId id = module_.entry(entry);
    const Graph& graph = module_.graph(id);
    std::vector<Literal> outputs = interpreter_->run(id, arguments(graph, inputs), inputs.sizes);
    peak_bytes_ = std::max(peak_bytes_, interpreter_->peak_bytes());
    EntryResults results;
    for (size_t i = 0; i < outputs.size(); ++i) take(graph.outputs[i].role, std::move(outputs[i]), results);
    return results;
  }

  void commit() override {
    for (auto& [name, value] : new_state_) state_[name] = std::move(value);
    new_state_.clear();
  }

  void find_non_finite(std::string_view entry, const EntryInputs& inputs) override {
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

  static LossQuotient& term_of(const Role& role, EntryResults& results) { return results.loss[std::string(loss_term(role))]; }
  void take(const Role& role, Literal value, EntryResults& results) {
    switch (role.kind) {
      case RoleKind::LossNumerator: term_of(role, results).numerator = value.at(0); break;
      case RoleKind::LossDenominator:
      case RoleKind::LossDenominatorWhole: term_of(role, results).sum = value.at(0); break;
      case RoleKind::LossDenominatorLeast: term_of(role, results).least = value.at(0); break;
      case RoleKind::LossDenominatorConstant: term_of(role, results).constant = value.at(0); break;
      case RoleKind::LearningRate: results.learning_rate = value.at(0); break;
      case RoleKind::GradientNorm: results.gradient_norm = value.at(0); break;
      case RoleKind::LossScale: results.loss_scale = value.at(0); break;
      case RoleKind::Skipped: results.skipped = value.at(0) != 0; break;
      case RoleKind::Metric: results.numbers[role.name] = value.at(0); break;
      case RoleKind::MetricNumerator: results.quotients[role.name].first = value.at(0); break;
      case RoleKind::MetricDenominator: results.quotients[role.name].second = value.at(0); break;
      case RoleKind::Gradient: results.gradients.insert_or_assign(role.name, std::move(value)); break;
      case RoleKind::UserOutput: results.outputs.insert_or_assign(role.name, std::move(value)); break;
      case RoleKind::NewState: {
        if (module_.states.find(role.name) == nullptr) break;  // that `init` makes and no entry takes
        const auto before = state_.find(role.name);
        if (!results.non_finite_state && before != state_.end() && !all_finite(value) && all_finite(before->second)) results.non_finite_state = role.name;
        new_state_.insert_or_assign(role.name, std::move(value));
        break;
      }
      default: break;
    }
  }

  using Values = std::map<std::string, Literal, std::less<>>;
  const Module& module_;
  const MeshBinding& binding_;
  Communicator* group_ = nullptr;
  std::unique_ptr<Interpreter> interpreter_;
  Values state_, new_state_;
  int64_t peak_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executor> reference_executor(const Module& local, const MeshBinding& binding) { return std::make_unique<ReferenceExecutor>(local, binding); }

}  // namespace stepgraph
