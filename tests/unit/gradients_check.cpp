// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/gradients_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph::gradient_tests {
namespace {

struct Built {
  Module module;
  std::vector<size_t> output_of_gradient;  // 0: absent
};

/// Outputs: the scalar, its gradients, and with `second` a weighted sum of these, then its gradients.
Built build(const Program& program, bool second) {
  Built built;
  const GraphId id = built.module.add_graph("main");
  built.module.entries = {{"main", id}};
  Builder builder(built.module, id);
  std::vector<Value> inputs, floating;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Literal& literal = program.inputs[i];
    Shape shape(literal.sizes().begin(), literal.sizes().end());
    if (i < program.shapes.size()) shape = program.shapes[i];
    for (const Dim& dim : shape)
      for (const std::string& symbol : dim.symbols())
        if (!built.module.symbols.find(symbol)) built.module.symbols.declare({symbol, SymbolKind::Size, 0, 100, 1, {}});
    inputs.push_back(builder.input({literal.dtype(), shape, {}}));
  }
  Value y = program.body(builder, inputs);
  for (int order = 0; order < (second ? 2 : 1); ++order) {
    builder.output(y);
    const auto found = gradients(builder, y, inputs);
    Value weighted = scalar(builder, DType::F64, 0);
    built.output_of_gradient.clear();
    for (size_t i = 0; i < found.size(); ++i) {
      built.output_of_gradient.push_back(found[i] ? builder.graph().outputs.size() : 0);
      if (!found[i]) continue;
      builder.output(*found[i]);
      if (found[i]->rank() == 0) {
        weighted = weighted + *found[i] * 0.7;
        continue;
      }
      // Weights that tell elements apart, for any size.
      Value weight = full_like(*found[i], 0.3);
      for (int64_t d = 0; d < found[i]->rank(); ++d) weight = weight + 0.37 * static_cast<double>(d + 1) * iota(builder, DType::F64, found[i]->shape(), d);
      weighted = weighted + sum(*found[i] * sin(weight));
    }
    y = weighted;
  }
  verify(built.module);
  return built;
}

void compare(const Built& built, const Program& program, size_t scalar_output, const char* what) {
  const GraphId main = built.module.entry("main");
  const std::vector<Literal> outputs = evaluate_graph(built.module, main, program.inputs);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (!is_floating(program.inputs[i].dtype())) {
      EXPECT_EQ(built.output_of_gradient[i], 0U) << "an integer has a gradient";
      continue;
    }
    for (int64_t e = 0; e < program.inputs[i].count(); ++e) {
      std::vector<Literal> inputs = program.inputs;
      const double at = inputs[i].at(e), h = 1e-5;
      inputs[i].set(e, at + h);
      const double above = evaluate_graph(built.module, main, inputs)[scalar_output].at(0);
      inputs[i].set(e, at - h);
      const double below = evaluate_graph(built.module, main, inputs)[scalar_output].at(0);
      const double wanted = (above - below) / (2 * h);
      const double found = built.output_of_gradient[i] ? outputs[built.output_of_gradient[i]].at(e) : 0;
      EXPECT_NEAR(found, wanted, 1e-6 * std::max(1.0, std::fabs(wanted))) << what << " derivative, input " << i << ", element " << e;
    }
  }
}

}  // namespace

Differentiated differentiate(const Program& program) {
  Built built = build(program, false);
  const std::vector<Literal> outputs = evaluate_graph(built.module, built.module.entry("main"), program.inputs);
  Differentiated result;
  result.value = outputs[0].at(0);
  for (size_t output : built.output_of_gradient) result.gradients.push_back(output ? std::optional<Literal>(outputs[output]) : std::nullopt);
  result.module = prune_graphs(std::move(built.module));
  return result;
}

void expect_gradients(const Program& program, bool second) {
  compare(build(program, false), program, 0, "first");
  if (!second) return;
  const Built built = build(program, true);
  size_t scalar_output = built.module.graph(built.module.entry("main")).outputs.size() - 1;
  for (size_t output : built.output_of_gradient) scalar_output -= output ? 1 : 0;
  compare(built, program, scalar_output, "second");
}

GraphId make_graph(Builder& outer, const std::string& name, std::vector<TensorType> inputs, const GraphBody& body) {
  const GraphId id = outer.module().add_graph(name);
  Builder builder(outer.module(), id);
  std::vector<Value> values;
  for (TensorType& type : inputs) values.push_back(builder.input(std::move(type)));
  for (const Value& output : body(builder, values)) builder.output(output);
  return id;
}

TensorType f64_type(const Shape& shape) { return {DType::F64, shape, {}}; }
Literal f64(const Sizes& sizes, const std::vector<double>& values) { return Literal::from_doubles(DType::F64, sizes, values); }
Literal some(const Sizes& sizes, int64_t start) {
  Literal result(DType::F64, sizes);
  for (int64_t i = 0; i < result.count(); ++i) {
    const double turn = static_cast<double>(i + start + 1) * 0.6180339887498949, part = 2 * (turn - std::floor(turn)) - 1;
    result.set(i, part + (part < 0 ? -0.1 : 0.1));
  }
  return result;
}

}  // namespace stepgraph::gradient_tests
