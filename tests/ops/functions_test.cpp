// SPDX-License-Identifier: Apache-2.0
// Functions over values: broadcasting, promotion, places, and what they say when something does not fit.
#include <gtest/gtest.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ops/functions.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace functions_test {

class Functions : public ::testing::Test {
 protected:
  Value input(DType dtype, Shape shape) { return builder_.input({dtype, std::move(shape), {}}); }
  Dim symbol(const std::string& name, int64_t minimum, int64_t maximum, int64_t multiple_of = 1) {
    return module_.symbols.declare({name, SymbolKind::Size, minimum, maximum, multiple_of, {}});
  }
  template <class F>
  std::string error_of(F f) {
    try {
      f();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
  const Node& last_node() { return builder_.graph().nodes.back(); }

  Module module_;
  Builder builder_{module_, module_.add_graph("main")};
};

TEST_F(Functions, Broadcast) {
  EXPECT_EQ(text((input(DType::F32, {4, 1}) + input(DType::F32, {3})).type()), "f32[4, 3]");
  EXPECT_EQ(text((input(DType::F32, {}) * input(DType::F32, {2, 3})).type()), "f32[2, 3]");
  EXPECT_EQ(text((input(DType::F32, {0}) - input(DType::F32, {1})).type()), "f32[0]");
  const Dim batch = symbol("batch", 1, 64);
  EXPECT_EQ(text((input(DType::F32, {batch, 8}) + input(DType::F32, {8})).type()), "f32[batch, 8]");
  EXPECT_EQ(text((input(DType::F32, {batch, 1}) + input(DType::F32, {1, batch * 2})).type()), "f32[batch, 2*batch]");
  EXPECT_EQ(text(where(input(DType::Bool, {3, 1}), input(DType::F32, {2}), input(DType::F32, {})).type()), "f32[3, 2]");
}

TEST_F(Functions, SaysWhichShapesDoNotBroadcast) {
  EXPECT_NE(error_of([&] { input(DType::F32, {4, 4}) + input(DType::F32, {10, 10}); }).find("add: shapes differ, f32[4, 4] and f32[10, 10] (functions_test.cpp:"),
            std::string::npos);
  const Dim batch = symbol("batch", 1, 64), length = symbol("length", 1, 9);
  EXPECT_NE(error_of([&] { input(DType::F32, {batch}) * input(DType::F32, {length}); })
                .find("mul: shapes may differ, f32[batch] and f32[length] with batch in [1, 64], length in [1, 9]"),
            std::string::npos);
  // 1 is in the range of batch, but a symbol does not stretch.
  EXPECT_NE(error_of([&] { input(DType::F32, {batch}) * input(DType::F32, {5}); }), "no error");
}

TEST_F(Functions, Promote) {
  EXPECT_EQ((input(DType::BF16, {2}) + input(DType::F32, {2})).dtype(), DType::F32);
  EXPECT_EQ((input(DType::BF16, {2}) + input(DType::F16, {2})).dtype(), DType::F32);
  EXPECT_EQ((input(DType::I32, {2}) * input(DType::F16, {2})).dtype(), DType::F16);
  EXPECT_EQ((input(DType::I32, {2}) / input(DType::I32, {2})).dtype(), DType::F32);
  EXPECT_EQ((input(DType::BF16, {2}) * 0.5).dtype(), DType::BF16);
  EXPECT_EQ((input(DType::I32, {2}) * 2.0).dtype(), DType::I32);
  EXPECT_EQ((input(DType::I32, {2}) * 0.5).dtype(), DType::F32);
  EXPECT_EQ((input(DType::I64, {2}) / 2.0).dtype(), DType::F32);
  EXPECT_EQ((1.0 - input(DType::Bool, {2})).dtype(), DType::I64);
  EXPECT_EQ(exp(input(DType::I32, {2})).dtype(), DType::F32);
  EXPECT_EQ(sum(input(DType::Bool, {2})).dtype(), DType::I64);
  EXPECT_EQ(mean(input(DType::I32, {2})).dtype(), DType::F32);
  EXPECT_EQ(logical_and(input(DType::F32, {2}), input(DType::Bool, {2})).dtype(), DType::Bool);
}

TEST_F(Functions, NodesCarryTheCallersLine) {
  const Value x = input(DType::F32, {2, 3});
  const int line = __LINE__ + 1;
  mean(x * 2.0);
  EXPECT_EQ(last_node().place.text(), "functions_test.cpp:" + std::to_string(line));
  EXPECT_EQ(builder_.place().line, 0);  // what was set before comes back
}

TEST_F(Functions, ReduceKeepsOrDropsDims) {
  const Value x = input(DType::F32, {2, 3, 4});
  EXPECT_EQ(text(sum(x).type()), "f32[]");
  EXPECT_EQ(text(sum(x, {-1}).type()), "f32[2, 3]");
  EXPECT_EQ(text(amax(x, {2, 0}, true).type()), "f32[1, 3, 1]");
  EXPECT_EQ(text(moments(x, {1}, true).variance.type()), "f32[2, 1, 4]");
  EXPECT_EQ(text(argmax(x, 1).type()), "i64[2, 4]");
  EXPECT_NE(error_of([&] { sum(x, {3}); }).find("sum: dim 3 is out of range for f32[2, 3, 4]"), std::string::npos);
  EXPECT_NE(error_of([&] { sum(x, {1, -2}); }).find("sum: dim 1 is given twice"), std::string::npos);
}

TEST_F(Functions, Reshape) {
  const Dim batch = symbol("batch", 2, 64, 2);
  const Value x = input(DType::F32, {batch, 3, 4});
  EXPECT_EQ(text(flatten(x, 0, 1).type()), "f32[3*batch, 4]");
  EXPECT_EQ(text(flatten(x, 1, -1).type()), "f32[batch, 12]");
  EXPECT_EQ(text(unflatten(x, 2, {2, 2}).type()), "f32[batch, 3, 2, 2]");
  EXPECT_EQ(text(unsqueeze(x, -1).type()), "f32[batch, 3, 4, 1]");
  EXPECT_EQ(text(squeeze(unsqueeze(x, 0), {0}).type()), "f32[batch, 3, 4]");
  EXPECT_EQ(text(split(x, 0, 2).at(1).type()), "f32[floordiv(batch, 2), 3, 4]");
  EXPECT_EQ(text(select(x, 0, -1).type()), "f32[3, 4]");
  EXPECT_EQ(text(transpose(x, 0, -1).type()), "f32[4, 3, batch]");
  EXPECT_EQ(text(pad(x, {0, 1, 0}, {0, 0, 2}).type()), "f32[batch, 4, 6]");
  EXPECT_NE(error_of([&] { reshape(x, {batch, 13}); }).find("reshape: element counts differ, f32[batch, 3, 4] has 12*batch and [batch, 13] has 13*batch"),
            std::string::npos);
  EXPECT_NE(error_of([&] { unflatten(x, 1, {2, 2}); }), "no error");
  EXPECT_NE(error_of([&] { split(x, 0, 4); }).find("split: dim 0 of f32[batch, 3, 4] does not split into 4 equal parts with batch in"), std::string::npos);
  EXPECT_NE(error_of([&] { select(x, 0, 2); }).find("select: index 2 is out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { squeeze(x, {1}); }).find("squeeze: dim 1 of f32[batch, 3, 4] is not 1"), std::string::npos);
}

TEST_F(Functions, MatMulShapes) {
  const auto shape = [&](Shape a, Shape b) { return text(matmul(input(DType::F32, std::move(a)), input(DType::F32, std::move(b))).shape()); };
  EXPECT_EQ(shape({4}, {4}), "[]");
  EXPECT_EQ(shape({3, 4}, {4}), "[3]");
  EXPECT_EQ(shape({4}, {4, 5}), "[5]");
  EXPECT_EQ(shape({3, 4}, {4, 5}), "[3, 5]");
  EXPECT_EQ(shape({2, 3, 4}, {4, 5}), "[2, 3, 5]");
  EXPECT_EQ(shape({3, 4}, {2, 4, 5}), "[2, 3, 5]");
  EXPECT_EQ(shape({7, 1, 3, 4}, {2, 4, 5}), "[7, 2, 3, 5]");
  EXPECT_EQ(shape({1, 2, 3, 4}, {6, 1, 4, 5}), "[6, 2, 3, 5]");
  EXPECT_EQ(shape({2, 4}, {3, 2, 4, 0}), "[3, 2, 2, 0]");
  EXPECT_NE(error_of([&] { shape({3, 512}, {768, 4}); }).find("matmul: inner dims differ, 512 and 768"), std::string::npos);
  EXPECT_NE(error_of([&] { shape({2, 3, 4}, {3, 4, 5}); }), "no error");
}

/// Against the sum written out.
TEST_F(Functions, MatMulBroadcastValues) {
  Numbers numbers(31);
  const std::vector<std::pair<Sizes, Sizes>> cases = {{{3, 4}, {2, 4, 5}}, {{5, 1, 3, 4}, {2, 4, 5}}, {{1, 2, 3, 4}, {6, 1, 4, 5}}, {{4}, {2, 4, 5}}, {{2, 3, 4}, {4}}};
  for (const auto& [a, b] : cases) {
    const std::vector<Literal> inputs = {numbers.uniform(a, -1, 1), numbers.uniform(b, -1, 1)};
    const auto both = run_graph(inputs, [](Builder&, std::span<const Value> in) {
      const Value rows = in[0].rank() == 1 ? unsqueeze(in[0], 0) : in[0], columns = in[1].rank() == 1 ? unsqueeze(in[1], 1) : in[1];
      Value wanted = sum(unsqueeze(rows, -1) * unsqueeze(columns, -3), {-2});
      if (in[0].rank() == 1) wanted = squeeze(wanted, {-2});
      if (in[1].rank() == 1) wanted = squeeze(wanted, {-1});
      return std::vector<Value>{matmul(in[0], in[1]), wanted};
    });
    ASSERT_EQ(text(type_of(both[0])), text(type_of(both[1])));
    for (int64_t i = 0; i < both[0].count(); ++i) EXPECT_NEAR(both[0].at(i), both[1].at(i), 1e-12);
  }
}

TEST_F(Functions, ConvolutionTransposeShapes) {
  const Value x = input(DType::F32, {2, 4, 5}), weight = input(DType::F32, {4, 3, 3});
  EXPECT_EQ(text(convolution_transpose(x, weight, {.strides = {2}, .padding = {1}, .dilation = {}}, {1}).type()), "f32[2, 3, 10]");
  EXPECT_EQ(text(convolution_transpose(x, weight, {.strides = {1}, .padding = {}, .dilation = {2}}, {1}).type()), "f32[2, 3, 10]");
  EXPECT_EQ(text(convolution_transpose(x, weight, {.strides = {}, .padding = {}, .dilation = {}, .groups = 2}).type()), "f32[2, 6, 7]");
  EXPECT_NE(error_of([&] { convolution_transpose(x, weight, {.strides = {2}, .padding = {}, .dilation = {}}, {2}); }), "no error");
}

TEST_F(Functions, ValuesOfTwoGraphsDoNotMix) {
  Builder other(module_, module_.add_graph("other"));
  const Value here = input(DType::F32, {2}), there = other.input({DType::F32, {2}, {}});
  EXPECT_NE(error_of([&] { here + there; }).find("add: operands belong to two graphs"), std::string::npos);
  EXPECT_NE(error_of([&] { neg(Value{}); }).find("belongs to no graph"), std::string::npos);
}

}  // namespace functions_test
}  // namespace stepgraph::testing
