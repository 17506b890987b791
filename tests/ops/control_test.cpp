// SPDX-License-Identifier: Apache-2.0
// Call, Loop and MapTensors: values against the same thing written out, gradients against central differences, types that do not fit.
#include <gtest/gtest.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace control_test {

const TensorType row{DType::F64, {3}, {}};

/// (state, slice, invariant) -> (state * slice + sin(invariant), state * slice).
GraphId recurrence_body(Module& module) {
  const GraphId id = module.add_graph("body");
  Builder builder(module, id);
  const Value state = builder.input(row), slice = builder.input(row), invariant = builder.input(row);
  const Value product = state * slice;
  builder.output(product + sin(invariant));
  builder.output(product);
  return id;
}

std::vector<Value> looped(Builder& builder, std::span<const Value> inputs, bool reverse) {
  const GraphId body = recurrence_body(builder.module());
  Loop loop;
  loop.body = body, loop.trip_count = 4, loop.symbol = "i", loop.carried = 1, loop.scanned = 1;
  loop.reverse = reverse;
  builder.module().symbols.declare({"i", SymbolKind::Iteration, 0, 3, 1, {}});
  return builder.emit(loop, inputs);
}

std::vector<Value> unrolled(std::span<const Value> inputs, bool reverse) {
  Value state = inputs[0];
  std::vector<Value> stacked(4);
  for (int step = 0; step < 4; ++step) {
    const int i = reverse ? 3 - step : step;
    const Value product = state * select(inputs[1], 0, i);
    stacked[static_cast<size_t>(i)] = unsqueeze(product, 0);
    state = product + sin(inputs[2]);
  }
  return {state, concatenate(stacked, 0)};
}

std::vector<Literal> loop_inputs() {
  Numbers numbers(21);
  return {numbers.uniform({3}, -1, 1), numbers.uniform({4, 3}, -1, 1), numbers.uniform({3}, -1, 1)};
}

Value weighted_sum(std::span<const Value> results) { return sum(results[0] * 0.7) + sum(results[1] * results[1] * 1.3); }

TEST(ControlOps, LoopEqualsTheUnrolledOne) {
  for (bool reverse : {false, true}) {
    const auto inputs = loop_inputs();
    const auto got = run_graph(inputs, [&](Builder& builder, std::span<const Value> values) { return looped(builder, values, reverse); });
    const auto wanted = run_graph(inputs, [&](Builder&, std::span<const Value> values) { return unrolled(values, reverse); });
    ASSERT_EQ(got.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(got[i] == wanted[i]) << got[i].text() << " wanted " << wanted[i].text();
  }
}

TEST(ControlOps, LoopGradientAgreesWithDifferences) {
  for (bool reverse : {false, true}) {
    const ScalarBuilder scalar = [reverse](Builder& builder, std::span<const Value> inputs) { return weighted_sum(looped(builder, inputs, reverse)); };
    EXPECT_EQ(compare_with_differences(scalar, loop_inputs()), "");
  }
}

TEST(ControlOps, CallEqualsItsBody) {
  const auto called = [](Builder& builder, std::span<const Value> inputs) {
    const GraphId body = recurrence_body(builder.module());
    const std::vector<Value> first = call(builder, body, std::vector<Value>{inputs[0], inputs[1], inputs[2]});
    return call(builder, body, std::vector<Value>{first[0], inputs[1], first[1]});
  };
  Numbers numbers(22);
  const std::vector<Literal> inputs = {numbers.uniform({3}, -1, 1), numbers.uniform({3}, -1, 1), numbers.uniform({3}, -1, 1)};
  const auto got = run_graph(inputs, called);
  const auto wanted = run_graph(inputs, [](Builder&, std::span<const Value> in) {
    const Value first = in[0] * in[1], state = first + sin(in[2]);
    return std::vector<Value>{state * in[1] + sin(first), state * in[1]};
  });
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(got[i] == wanted[i]) << got[i].text();
  const ScalarBuilder scalar = [called](Builder& builder, std::span<const Value> values) { return weighted_sum(called(builder, values)); };
  EXPECT_EQ(compare_with_differences(scalar, inputs), "");
  EXPECT_EQ(compare_with_differences(weighted_gradients(scalar, inputs), inputs, 4, 2e-6), "");
}

/// (x, g, rate) -> (x - rate * g, g * 2): over two tensors of different shapes.
TEST(ControlOps, MapTensorsIsItsBodyForEachTensor) {
  Numbers numbers(23);
  const std::vector<Literal> inputs = {numbers.uniform({3}, -1, 1), numbers.uniform({2, 2}, -1, 1), numbers.uniform({3}, -1, 1),
                                       numbers.uniform({2, 2}, -1, 1), Literal::scalar(DType::F64, 0.1)};
  const auto got = run_graph(inputs, [](Builder& builder, std::span<const Value> values) {
    Module& module = builder.module();
    const GraphId id = module.add_graph("update");
    Builder body(module, id);
    const TensorType scalar_type{DType::F64, {}, {}};
    const Value x = body.input(scalar_type), g = body.input(scalar_type), rate = body.input(scalar_type);
    body.output(x - rate * g);
    body.output(g * 2.0);
    return builder.emit(MapTensors{id, 2, 2}, values);
  });
  ASSERT_EQ(got.size(), 4u);
  for (size_t j = 0; j < 2; ++j) {
    for (int64_t i = 0; i < inputs[j].count(); ++i) {
      EXPECT_EQ(got[j].at(i), inputs[j].at(i) - 0.1 * inputs[j + 2].at(i));
      EXPECT_EQ(got[j + 2].at(i), 2 * inputs[j + 2].at(i));
    }
  }
}

/// (g, rate) -> (g * rate, sum of squares, count of those above 0): the sums are over all elements of all tensors, the empty one's too.
TEST(ControlOps, MapTensorsReducesOverAllTensors) {
  Numbers numbers(29);
  std::vector<Literal> inputs = {numbers.uniform({3}, -1, 1), numbers.uniform({0, 4}, -1, 1), numbers.uniform({200, 100}, -1, 1),
                                 Literal::scalar(DType::F64, 0.5)};
  for (const DType dtype : {DType::F64, DType::F32}) {
    for (Literal& input : inputs) input = input.converted(dtype);
    const auto got = run_graph(inputs, [dtype](Builder& builder, std::span<const Value> values) {
      const GraphId id = builder.module().add_graph("squares");
      Builder body(builder.module(), id);
      const Value g = body.input({dtype, {}, {}}), rate = body.input({dtype, {}, {}});
      body.output(g * rate);
      body.output(g * g);
      body.output(convert(greater(g, 0.0), DType::I32));
      return builder.emit(MapTensors{id, 3, 1, 2}, values);
    });
    ASSERT_EQ(got.size(), 5u);
    double squares = 0;
    int64_t above = 0;
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(got[j].sizes(), inputs[j].sizes());
      for (int64_t i = 0; i < inputs[j].count(); ++i) {
        const double x = inputs[j].at(i);
        EXPECT_EQ(got[j].at(i), round_to(dtype, 0.5 * x));
        squares += round_to(dtype, x * x);
        above += x > 0 ? 1 : 0;
      }
    }
    EXPECT_NEAR(got[3].at(0), round_to(dtype, squares), 1e-12 * squares);
    EXPECT_EQ(got[4].dtype(), DType::I32);
    EXPECT_EQ(got[4].integer_at(0), above);
  }
}

TEST(ControlOps, RefuseOperandsThatDoNotFit) {
  Module module;
  const GraphId body = recurrence_body(module);
  const TensorType wrong{DType::F64, {4}, {}};
  EXPECT_THROW(infer_types(Call{body}, std::vector<TensorType>{row, row}, module), UserError);
  EXPECT_THROW(infer_types(Call{body}, std::vector<TensorType>{row, row, wrong}, module), UserError);
  Loop loop;
  loop.body = body, loop.trip_count = 4, loop.symbol = "i", loop.carried = 1, loop.scanned = 1;
  EXPECT_THROW(infer_types(loop, std::vector<TensorType>{row, {DType::F64, {5, 3}, {}}, row}, module), UserError);
  EXPECT_THROW(infer_types(loop, std::vector<TensorType>{wrong, {DType::F64, {4, 3}, {}}, row}, module), UserError);
  EXPECT_THROW(infer_types(MapTensors{body, 1, 2}, std::vector<TensorType>{row, row, row}, module), UserError);
}

}  // namespace control_test
}  // namespace stepgraph::testing
