// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/sample_program.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph::testing {
namespace {

using Build = std::function<std::vector<Value>(Builder&, std::span<const Value>)>;

struct Program {
  Module module;
  GraphId graph;
};

Program make_program(std::span<const Literal> inputs, const Build& build) {
  Program program;
  program.graph = program.module.add_graph("main");
  Builder builder(program.module, program.graph);
  std::vector<Value> values;
  for (const Literal& input : inputs) values.push_back(builder.input(type_of(input)));
  for (const Value& value : build(builder, values)) builder.output(value);
  verify(program.module);
  return program;
}

std::vector<Value> floating(std::span<const Value> values) {
  std::vector<Value> result;
  std::copy_if(values.begin(), values.end(), std::back_inserter(result), [](const Value& value) { return is_floating(value.dtype()); });
  return result;
}

/// sum over i of <values[i], fixed numbers>.
Value weighted(Builder& builder, std::span<const Value> values, uint64_t seed) {
  Numbers numbers(seed);
  Value total = scalar(builder, DType::F64, 0);
  for (const Value& value : values) {
    Sizes sizes;
    for (const Dim& dim : value.shape()) sizes.push_back(dim.constant());
    total = total + sum(convert(value, DType::F64) * constant(builder, numbers.signed_uniform(sizes, 0.3, 1)));
  }
  return total;
}

}  // namespace

TensorType type_of(const Literal& literal) { return {literal.dtype(), Shape(literal.sizes().begin(), literal.sizes().end()), {}}; }

std::vector<Literal> run_graph(std::span<const Literal> inputs, const Build& build) {
  const Program program = make_program(inputs, build);
  return evaluate_graph(program.module, program.graph, inputs);
}

std::vector<Literal> run_sample(const Op& op, std::span<const Literal> inputs) {
  return run_graph(inputs, [&](Builder& builder, std::span<const Value> values) { return builder.emit(op, values); });
}

std::vector<TensorType> infer_sample(const Op& op, std::span<const Literal> inputs) {
  std::vector<TensorType> types;
  for (const Literal& input : inputs) types.push_back(type_of(input));
  return infer_types(op, types, Module{});
}

std::optional<ScalarBuilder> weighted_results(const Sample& sample) {
  bool any = false;
  for (const TensorType& type : infer_sample(sample.op, sample.inputs)) any = any || is_floating(type.dtype);
  if (!any) return std::nullopt;
  return [op = sample.op](Builder& builder, std::span<const Value> inputs) {
    const std::vector<Value> results = builder.emit(op, inputs);
    return weighted(builder, floating(results), 100);
  };
}

ScalarBuilder weighted_gradients(const ScalarBuilder& scalar_of, std::span<const Literal>) {
  return [scalar_of](Builder& builder, std::span<const Value> inputs) {
    std::vector<Value> present;
    for (const std::optional<Value>& gradient : gradients(builder, scalar_of(builder, inputs), floating(inputs))) {
      if (gradient) present.push_back(*gradient);
    }
    return weighted(builder, present, 200);
  };
}

std::string compare_with_differences(const ScalarBuilder& scalar_of, std::vector<Literal> inputs, int64_t elements_max, double tolerance) {
  const Program value_program = make_program(inputs, [&](Builder& builder, std::span<const Value> values) { return std::vector<Value>{scalar_of(builder, values)}; });
  const auto value_at = [&] { return evaluate_graph(value_program.module, value_program.graph, inputs).at(0).at(0); };
  std::vector<bool> present;
  const std::vector<Literal> found = run_graph(inputs, [&](Builder& builder, std::span<const Value> values) {
    std::vector<Value> result;
    for (const std::optional<Value>& gradient : gradients(builder, scalar_of(builder, values), floating(values))) {
      present.push_back(gradient.has_value());
      if (gradient) result.push_back(*gradient);
    }
    return result;
  });
  size_t floating_index = 0, found_index = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i].dtype())) continue;
    const bool has_gradient = present.at(floating_index++);
    const Literal* gradient = has_gradient ? &found.at(found_index++) : nullptr;
    if (gradient != nullptr && (gradient->sizes() != inputs[i].sizes() || gradient->dtype() != inputs[i].dtype())) {
      return fmt::format("gradient of input {} is {}", i, text(type_of(*gradient)));
    }
    const int64_t count = inputs[i].count();
    const int64_t stride = std::max<int64_t>(1, count / elements_max);
    for (int64_t e = 0; e < count; e += stride) {
      const double here = inputs[i].at(e), step = 1e-5;
      inputs[i].set(e, here + step);
      const double above = value_at();
      inputs[i].set(e, here - step);
      const double below = value_at();
      inputs[i].set(e, here);
      const double wanted = (above - below) / (2 * step);
      const double got = gradient == nullptr ? 0 : gradient->at(e);
      if (!(std::fabs(got - wanted) <= tolerance * (1 + std::fabs(wanted)))) {
        return fmt::format("input {}, element {}: gradient {}, central difference {}", i, e, got, wanted);
      }
    }
  }
  return "";
}

}  // namespace stepgraph::testing
