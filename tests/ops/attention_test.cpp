// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient against their decompositions, in half precision, with rows that see nothing, and its inference's errors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace attention_test {

bool has_decomposition(const Sample& sample) { return op_info(sample.op).decompose != nullptr; }

double largest(const Literal& value) {
  double result = 1;
  for (int64_t i = 0; i < value.count(); ++i)
    if (std::isfinite(value.at(i))) result = std::max(result, std::fabs(value.at(i)));
  return result;
}

TEST(Attention, EqualsItsDecomposition) {
  int compared = 0;
  for (const auto& [dtype, tolerance] :
       std::vector<std::pair<DType, double>>{{DType::F64, 1e-14}, {DType::F32, 1e-6}, {DType::BF16, 1e-2}, {DType::F16, 2e-3}}) {
    for (const Sample& sample : samples()) {
      if (!has_decomposition(sample)) continue;
      SCOPED_TRACE(describe(sample) + " " + std::string(name(dtype)));
      std::vector<Literal> inputs = sample.inputs;
      for (Literal& input : inputs)
        if (is_floating(input.dtype())) input = input.converted(dtype);
      const std::vector<Literal> got = run_sample(sample.op, inputs);
      const std::vector<Literal> wanted =
          run_graph(inputs, [&](Builder&, std::span<const Value> values) { return op_info(sample.op).decompose(sample.op, values); });
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t r = 0; r < got.size(); ++r) {
        ASSERT_EQ(text(type_of(got[r])), text(type_of(wanted[r])));
        for (int64_t i = 0; i < got[r].count(); ++i) {
          const double a = got[r].at(i), b = wanted[r].at(i);
          EXPECT_TRUE(a == b || std::fabs(a - b) <= tolerance * largest(wanted[r])) << "result " << r << " element " << i << ": " << a << " and " << b;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

/// out and the gradients of its sum, of the op on these operands.
std::vector<Literal> with_gradients(const Attention& op, const std::vector<Literal>& inputs) {
  return run_graph(inputs, [&](Builder& builder, std::span<const Value> values) {
    const Value out = builder.emit(op, values)[0];
    std::vector<Value> results = {out}, xs;
    for (const Value& value : values)
      if (is_floating(value.dtype())) xs.push_back(value);
    for (const auto& gradient : gradients(builder, sum(out), xs)) results.push_back(*gradient);
    return results;
  });
}

TEST(Attention, ScoresBeyondAHalfAreNoInfinity) {
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const Literal large = Literal::full(dtype, {1, 2}, 400), v = Literal::from_doubles(dtype, {1, 2}, std::vector<double>{1, 2});
    const std::vector<Literal> got = with_gradients(Attention{1 / std::sqrt(2.0)}, {large, large, v});
    EXPECT_EQ(got[0].dtype(), dtype);
    EXPECT_EQ(got[0].to_doubles(), (std::vector<double>{1, 2}));
    EXPECT_EQ(got[1].to_doubles(), (std::vector<double>{0, 0}));
    EXPECT_EQ(got[2].to_doubles(), (std::vector<double>{0, 0}));
    EXPECT_EQ(got[3].to_doubles(), (std::vector<double>{1, 1}));
  }
}

TEST(Attention, ARowThatSeesNothingIsZeroAndHasNoGradient) {
  const double never = -std::numeric_limits<double>::infinity();
  Numbers numbers(3);
  const Literal q = numbers.uniform({1, 2, 2, 2}, -1, 1), k = numbers.uniform({1, 2, 3, 2}, -1, 1), v = numbers.uniform({1, 2, 3, 2}, -1, 1);
  for (const Literal& mask : {Literal::from_integers(DType::Bool, {2, 3}, std::vector<int64_t>{0, 0, 0, 1, 1, 0}),
                              Literal::from_doubles(DType::F64, {2, 3}, std::vector<double>{never, never, never, 0, 0, never})}) {
    const std::vector<Literal> got = with_gradients(Attention{0.5}, {q, k, v, mask});
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(got[0].at(head * 4 + i), 0) << "the first query sees no key";
        EXPECT_EQ(got[1].at(head * 4 + i), 0);
        EXPECT_NE(got[1].at(head * 4 + 2 + i), 0) << "the second one does";
        EXPECT_EQ(got[3].at(head * 6 + 4 + i), 0) << "nobody sees the last key";
      }
    }
    for (const Literal& value : got)
      for (double x : value.to_doubles()) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(Attention, ErrorsNameWhatDoesNotFit) {
  const auto error_of = [](const Op& op, const std::vector<TensorType>& inputs) -> std::string {
    try {
      infer_types(op, inputs, Module{});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  const TensorType q{DType::F32, {2, 4, 3, 8}, {}}, k{DType::F32, {2, 3, 5, 8}, {}}, narrow{DType::BF16, {2, 4, 3, 8}, {}}, sums{DType::F32, {2, 4, 3}, {}};
  EXPECT_EQ(error_of(Attention{}, {q, k, k}),
            "attention: found query f32[2, 4, 3, 8], key f32[2, 3, 5, 8], value f32[2, 3, 5, 8], wanted [..., T, D], [..., S, D], [..., S, E] of one dtype");
  EXPECT_EQ(error_of(Attention{}, {q, narrow, narrow}),
            "attention: found query f32[2, 4, 3, 8], key bf16[2, 4, 3, 8], value bf16[2, 4, 3, 8], wanted [..., T, D], [..., S, D], [..., S, E] of one dtype");
  EXPECT_EQ(error_of(Attention{}, {q, q, q, {DType::I32, {3, 3}, {}}}),
            "attention: found mask i32[3, 3], wanted bool or a floating dtype that broadcasts to [2, 4, 3, 3]");
  EXPECT_EQ(error_of(Attention{}, {q, q, q, {DType::Bool, {2, 3, 3}, {}}}),
            "attention: found mask bool[2, 3, 3], wanted bool or a floating dtype that broadcasts to [2, 4, 3, 3]");
  EXPECT_EQ(error_of(Attention{INFINITY}, {q, q, q}), "attention: found a scale of inf, wanted a finite number");
  EXPECT_EQ(error_of(AttentionGradient{}, {q, q, q, q, q, q, sums}),
            "attention_gradient: found f32[2, 4, 3, 8] as input 4, wanted a floating dtype of [2, 4, 3]");
  EXPECT_EQ(error_of(AttentionGradient{{}, true}, {q, q, q, q, sums, q, sums}), "attention_gradient: mask_gradient wants a floating mask");
  EXPECT_EQ(error_of(Attention{}, {q, q}), "attention: 2 operands, 3 to 5 wanted");
}

}  // namespace attention_test
}  // namespace stepgraph::testing
