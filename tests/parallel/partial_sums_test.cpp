// SPDX-License-Identifier: Apache-2.0
// C23 and its kind: what is done with a sum that is spread over ranks. A constant must be added once, not once for each rank; what is not linear must see
// the whole sum.
#include <gtest/gtest.h>

#include <limits>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "tests/parallel/mesh_check.h"

namespace stepgraph {
namespace partial_sums_test {

void output_gradient(Builder& builder, Value y, Value x, const std::string& name) {
  const Value xs[] = {x};
  const auto found = gradients(builder, y, xs);
  ASSERT_TRUE(found[0].has_value()) << name;
  user_output(*found[0], name);
}

Literal one_to(int64_t count) {
  Literal x(DType::F64, {count});
  for (int64_t i = 0; i < count; ++i) x.set(i, static_cast<double>(i + 1));
  return x;
}

TEST(PartialSums, ConstantIsAddedOnceAndFunctionsSeeTheWholeSum) {
  const Module module = module_of([](Builder& b) {
    const Value x = batch_input(b, "x", DType::F64, {6});
    const Value t = sum(x);
    const Value y = t + 7.0, z = relu(t - 30.0), u = maximum(t, scalar(b, DType::F64, 5));
    user_output(y, "y"), user_output(z, "z"), user_output(u, "u");
    output_gradient(b, y, x, "dy"), output_gradient(b, u, x, "du"), output_gradient(b, z, x, "dz");
  });
  const Literal ones = Literal::full(DType::F64, {6}, 1), zeros = Literal::full(DType::F64, {6}, 0);
  const auto number = [](double value) { return Literal::scalar(DType::F64, value); };
  const std::vector<Literal> wanted = {number(28), number(0), number(21), ones, ones, zeros};
  for (int ranks = 1; ranks <= 7; ++ranks)
    expect_close(on_mesh(module, "data=" + std::to_string(ranks), {one_to(6)}), wanted, 0, std::to_string(ranks) + " ranks");
}

TEST(PartialSums, NeighboursOfTheKind) {
  for (int64_t count = 0; count <= 9; ++count) {
    const Module module = module_of([&](Builder& b) {
      const Value x = batch_input(b, "x", DType::F64, {count});
      const Value t = sum(x), s = sum(x * x);
      user_output(t * t, "square");
      user_output(t * s, "product of two sums");
      user_output(t + s, "sum of two sums");
      user_output(t * 2.0 - s / 3.0, "linear");
      user_output(sqrt(s), "norm");
      user_output(exp(t * 0.01), "exp");
      user_output(minimum(t, s), "minimum");
      user_output(where(greater(t, 4.0), t, neg(s)), "where");
      user_output(x * t, "scaled");
      user_output(x / sqrt(s + 1.0), "normalised");
      user_output(amax(concatenate(std::vector<Value>{unsqueeze(t, 0), unsqueeze(s, 0)}, 0)), "largest");
      user_output(prod(x), "prod"), user_output(any(greater(x, 3.0)), "any"), user_output(all(less(x, 8.0)), "all");
      user_output(convert(convert(t, DType::F32), DType::F64), "rounded");
      user_output(sum(convert(x, DType::I64)), "integers");
      if (count > 0) user_output(amin(x) + 1.0, "amin"), user_output(amax(x) * 2.0, "amax"), user_output(mean(x) + 1.0, "mean");
    });
    expect_ranks_agree(module, {one_to(count)}, 1e-12, std::to_string(count) + " elements");
  }
}

TEST(PartialSums, OneReductionServesAllUses) {
  const Module module = module_of([](Builder& b) {
    const Value x = batch_input(b, "x", DType::F32, {8, 4});
    const Value gradient = sum(x, {0});
    const Value norm = sqrt(sum(gradient * gradient));
    user_output(gradient / norm, "clipped");
    user_output(gradient * 2.0, "doubled");
  });
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  const Module local = compile(module, options);
  EXPECT_EQ(count_nodes<AllReduce>(local, local.entry("main")), 1);
  const auto sent = collectives(local, local.entry("main"));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(text(sent), "all_reduce x 1 over data, 16 B");
}

TEST(PartialSums, LinearUsesWaitAndShareOneReduction) {
  const Module module = module_of([](Builder& b) {
    const Value x = batch_input(b, "x", DType::F32, {8, 4}), y = batch_input(b, "y", DType::F32, {8, 4});
    user_output(exp(sum(x, {0}) + sum(y, {0}) * 0.5), "z");
  });
  CompileOptions options;
  options.mesh = parse_mesh("data=4");
  const Module local = compile(module, options);
  EXPECT_EQ(count_nodes<AllReduce>(local, local.entry("main")), 1);
}

TEST(PartialSums, InfinitiesFlowAsOnOneRank) {
  const Module module = module_of([](Builder& b) {
    const Value x = batch_input(b, "x", DType::F64, {4}), w = parameter_input(b, "w", DType::F64, {3});
    const Value t = sum(x);
    user_output(w * t, "product");
    user_output(t / w, "quotient");
    user_output(where(is_finite(w), w, t), "chosen");
  });
  const double infinity = std::numeric_limits<double>::infinity();
  // The ranks' own sums differ in sign.
  expect_ranks_agree(module,
                     {Literal::from_doubles(DType::F64, {4}, std::vector<double>{-1, -2, 3, 4}),
                      Literal::from_doubles(DType::F64, {3}, std::vector<double>{infinity, 0, -infinity})},
                     0, "infinities");
}

/// What is beyond f16 on one rank's rows is not in the sum over all.
TEST(PartialSums, SummandsOfHalvesAreWide) {
  const Module module = module_of([](Builder& b) {
    const Value x = batch_input(b, "x", DType::F16, {4, 2}), y = batch_input(b, "y", DType::F16, {4, 3}), w = parameter_input(b, "w", DType::F16, {2});
    const Value rows = batch_input(b, "rows", DType::I64, {4});
    const Value columns = sum(x, {0});
    user_output(columns, "sum");
    user_output(sum(x), "all");
    user_output(matmul(permute(x, {1, 0}), y), "product");
    user_output(columns + columns * 0.5, "linear");
    user_output(w - columns, "whole");
    user_output(relu(columns), "relu");
    user_output(index_add(zeros_like(y), 0, rows, y), "rows");
    user_output(convert(columns, DType::F32) * 2.0, "widened");
  });
  const auto halves = [](const Sizes& sizes, const std::vector<double>& values) { return Literal::from_doubles(DType::F16, sizes, values); };
  const std::vector<Literal> inputs = {halves({4, 2}, {40000, 1, 40000, 2, -40000, 3, -40000, 4}), halves({4, 3}, {1, 1, 2, 1, 1, 2, 1, 1, 2, 1, 1, 2}),
                                       halves({2}, {1, 1}), Literal::from_integers(DType::I64, {4}, std::vector<int64_t>{0, 1, 0, 1})};
  const std::vector<Literal> one = on_one_rank(module, inputs);
  EXPECT_EQ(one[0].at(0), 0);
  EXPECT_EQ(one[2].at(0), 0);
  expect_ranks_agree(module, inputs, 0, "halves");
}

TEST(PartialSums, SplitUserGetsAReduceScatter) {
  const Module module = module_of([](Builder& b) {
    const Value x = batch_input(b, "x", DType::F64, {6, 5});
    const Value w = parameter_input(b, "w", DType::F64, {5});
    b.output(w - sum(x, {0}), {RoleKind::NewState, "w"});
  });
  ShardingOptions sharding = laid("w", "{data}");
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  options.sharding = sharding;
  const Module local = compile(module, options);
  EXPECT_EQ(count_nodes<ReduceScatter>(local, local.entry("main")), 1);
  EXPECT_EQ(count_nodes<AllReduce>(local, local.entry("main")), 0);
  expect_ranks_agree(module, {numbers(DType::F64, {6, 5}), numbers(DType::F64, {5}, 50)}, 1e-12, "split state", sharding);
}

}  // namespace partial_sums_test
}  // namespace stepgraph
