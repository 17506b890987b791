// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/module_runner.h"

#include <cmath>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph::testing {

ModuleRunner::ModuleRunner(Module module_, int64_t seed_) : module(std::move(module_)), seed(seed_) {
  const Graph& init = module.graph(module.entry("init"));
  const std::vector<Literal> outputs = Interpreter(module).run("init", {Literal::integer(DType::I64, seed)});
  for (size_t i = 0; i < outputs.size(); ++i) state[init.outputs[i].role.name] = outputs[i];
}

EntryOutputs ModuleRunner::run(const std::string& entry, const State& batch) {
  const Graph& graph = module.graph(module.entry(entry));
  std::vector<Literal> inputs;
  for (const GraphInput& input : graph.inputs) {
    switch (input.role.kind) {
      case RoleKind::Seed: inputs.push_back(Literal::integer(DType::I64, seed)); break;
      case RoleKind::Step: inputs.push_back(Literal::integer(DType::I64, steps_done)); break;
      case RoleKind::Batch: inputs.push_back(batch.at(input.role.name)); break;
      default: inputs.push_back(state.at(input.role.name));
    }
  }
  const std::vector<Literal> results = Interpreter(module).run(entry, inputs);
  EntryOutputs outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    const Role& role = graph.outputs[i].role;
    switch (role.kind) {
      case RoleKind::LossNumerator: outputs.loss_numerator = results[i]; break;
      case RoleKind::LossDenominator: outputs.loss_denominator = results[i]; break;
      case RoleKind::Metric: outputs.metrics[role.name] = results[i]; break;
      case RoleKind::GradientNorm: outputs.gradient_norm = results[i]; break;
      case RoleKind::MetricNumerator: outputs.metrics[role.name + ".numerator"] = results[i]; break;
      case RoleKind::MetricDenominator: outputs.metrics[role.name + ".denominator"] = results[i]; break;
      case RoleKind::Gradient: outputs.gradients[role.name] = results[i]; break;
      case RoleKind::UserOutput: outputs.user[role.name] = results[i]; break;
      case RoleKind::NewState: state.at(role.name) = results[i]; break;
      default: break;
    }
  }
  return outputs;
}

EntryOutputs ModuleRunner::step(const State& batch) {
  EntryOutputs outputs = run("step", batch);
  ++steps_done;
  return outputs;
}

EntryOutputs ModuleRunner::eval(const State& batch) { return run("eval", batch); }

namespace {

TensorType type_of(const Literal& literal) {
  TensorType type{literal.dtype(), {}, {}};
  for (int64_t size : literal.sizes()) type.shape.emplace_back(size);
  return type;
}

}  // namespace

std::vector<Literal> evaluate(const std::vector<Literal>& inputs, const Body& body) {
  Module module;
  const GraphId id = module.add_graph("main");
  Builder builder(module, id);
  std::vector<Value> values;
  for (const Literal& input : inputs) values.push_back(builder.input(type_of(input)));
  for (const Value& result : body(builder, values)) builder.output(result);
  return evaluate_graph(module, id, inputs);
}

Differentiated differentiate(const std::vector<Literal>& inputs, const std::function<Value(Builder&, const std::vector<Value>&)>& body) {
  std::vector<bool> present;
  const std::vector<Literal> results = evaluate(inputs, [&](Builder& builder, const std::vector<Value>& values) {
    const Value y = body(builder, values);
    std::vector<Value> outputs{y};
    for (const std::optional<Value>& gradient : gradients(builder, y, values)) {
      present.push_back(gradient.has_value());
      if (gradient) outputs.push_back(*gradient);
    }
    return outputs;
  });
  Differentiated found{results[0], {}};
  size_t next = 1;
  for (bool there : present) found.gradients.push_back(there ? std::optional<Literal>(results[next++]) : std::nullopt);
  return found;
}

Literal f32(Sizes sizes, std::vector<double> values) { return Literal::from_doubles(DType::F32, std::move(sizes), values); }
Literal f64(Sizes sizes, std::vector<double> values) { return Literal::from_doubles(DType::F64, std::move(sizes), values); }
Literal i32(Sizes sizes, std::vector<int64_t> values) { return Literal::from_integers(DType::I32, std::move(sizes), values); }
Literal i64(Sizes sizes, std::vector<int64_t> values) { return Literal::from_integers(DType::I64, std::move(sizes), values); }

std::vector<double> some_numbers(size_t count, uint64_t seed) {
  std::vector<double> numbers(count);
  uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (double& number : numbers) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    number = static_cast<double>(state >> 11) * 0x1p-52 - 1;
  }
  return numbers;
}

double relative_difference(const Literal& found, const std::vector<double>& wanted) {
  if (found.count() != static_cast<int64_t>(wanted.size())) return INFINITY;
  double largest = 1e-30, difference = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    const double d = std::abs(found.at(static_cast<int64_t>(i)) - wanted[i]);
    if (!(d <= difference)) difference = d;  // NaN counts
  }
  return difference / largest;
}

}  // namespace stepgraph::testing
