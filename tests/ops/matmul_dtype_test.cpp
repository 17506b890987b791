// SPDX-License-Identifier: Apache-2.0
// Products of narrow operands with a wide result: one rounding forwards and one backwards.
#include <gtest/gtest.h>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace matmul_dtype_test {

constexpr double small = 1.0 / 128;  // half of a bf16's step at 1

TEST(MatMulDtype, KeepsWhatANarrowResultLoses) {
  const Literal x = Literal::from_doubles(DType::BF16, {1, 2}, std::vector<double>{1, small}),
                w = Literal::from_doubles(DType::BF16, {1, 2}, std::vector<double>{1, 0.5});
  const auto product = [&](std::optional<DType> dtype) {
    return run_graph(std::vector<Literal>{x, w},
                     [&](Builder& builder, std::span<const Value> in) { return builder.emit(MatMul{{}, {}, {1}, {1}, dtype}, in); })[0];
  };
  EXPECT_EQ(product(std::nullopt).at(0), 1);
  EXPECT_EQ(product(DType::F32).at(0), 1 + small / 2);
  EXPECT_EQ(product(DType::F32).dtype(), DType::F32);
}

/// The gradients are in the operands' dtype, rounded once from the wide gradient of the result.
TEST(MatMulDtype, GradientsAreRoundedOnce) {
  const Literal x = Literal::from_doubles(DType::BF16, {1, 2}, std::vector<double>{1, 2}),
                w = Literal::from_doubles(DType::BF16, {2, 2}, std::vector<double>{1, 1, 1, -1});
  const Literal g = Literal::from_doubles(DType::F32, {1, 2}, std::vector<double>{1, small / 2});
  const auto got = run_graph(std::vector<Literal>{x, w, g}, [](Builder& builder, std::span<const Value> in) {
    const Value y = builder.emit_one(MatMul{{}, {}, {1}, {0}, DType::F32}, {in[0], in[1]});
    std::vector<Value> results;
    for (const auto& gradient : gradients(builder, sum(y * in[2]), std::vector<Value>{in[0], in[1]})) results.push_back(*gradient);
    return results;
  });
  EXPECT_EQ(got[0].dtype(), DType::BF16);
  EXPECT_EQ(got[1].dtype(), DType::BF16);
  EXPECT_EQ(got[0].to_doubles(), (std::vector<double>{round_to(DType::BF16, 1 + small / 2), round_to(DType::BF16, 1 - small / 2)}));
  EXPECT_EQ(got[1].to_doubles(), (std::vector<double>{1, small / 2, 2, small}));
}

/// Where the wide gradient was a narrow one a moment before, the products backwards are of narrow operands.
TEST(MatMulDtype, ANarrowGradientIsNotMultipliedWide) {
  Module module;
  const GraphId graph = module.add_graph("main");
  Builder builder(module, graph);
  const Value x = builder.input({DType::BF16, {3, 4}, {}}), w = builder.input({DType::BF16, {4, 5}, {}}), b = builder.input({DType::BF16, {5}, {}});
  const Value y = convert(builder.emit_one(MatMul{{}, {}, {1}, {0}, DType::F32}, {x, w}) + convert(b, DType::F32), DType::BF16);
  gradients(builder, sum(y), std::vector<Value>{x, w, b});
  int products = 0;
  for (const Node& node : builder.graph().nodes) {
    if (!std::holds_alternative<MatMul>(node.op)) continue;
    ++products;
    for (const ValueId input : node.inputs) EXPECT_EQ(builder.graph().type(input).dtype, DType::BF16);
  }
  EXPECT_EQ(products, 3);
}

}  // namespace matmul_dtype_test
}  // namespace stepgraph::testing
