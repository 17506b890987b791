// SPDX-License-Identifier: Apache-2.0
// Operands that lie in memory as no library takes them: read backwards, stretched, with more or fewer dims. Such a call is made on a copy, or by the interpreter; a
// library that is given them writes nothing and tells nobody.
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/ir/text.h"
#include "tests/support/close.h"

namespace stepgraph {
namespace operands_of_calls_test {

struct Case {
  const char* name;
  const char* body;  ///< of @main, inputs and outputs too
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

const Case cases[] = {
    {"ReversedRows", R"(
  input %x : f32[5, 4]
  input %w : f32[4, 3]
  %v = reverse(%x, dims=[0]) : f32[5, 4]
  %y = matmul(%v, %w, lhs_contract=[1], rhs_contract=[0]) : f32[5, 3]
  output %y)"},
    {"ReversedColumns", R"(
  input %x : f32[5, 4]
  input %w : f32[4, 3]
  %v = reverse(%x, dims=[1]) : f32[5, 4]
  %y = matmul(%v, %w, lhs_contract=[1], rhs_contract=[0]) : f32[5, 3]
  output %y)"},
    {"ReversedBatchOfSymbols", R"(
  input %x : f32[batch, 4]
  input %w : f32[4, 3]
  %v = reverse(%x, dims=[0]) : f32[batch, 4]
  %y = matmul(%v, %w, lhs_contract=[1], rhs_contract=[0]) : f32[batch, 3]
  output %y)"},
    {"ReversedContractedRows", R"(
  input %x : f32[5, 4]
  input %w : f32[5, 3]
  %v = reverse(%w, dims=[0]) : f32[5, 3]
  %y = matmul(%x, %v, lhs_contract=[0], rhs_contract=[0]) : f32[4, 3]
  output %y)"},
    {"ReversedMatrices", R"(
  input %x : f32[3, 5, 4]
  input %w : f32[3, 4, 2]
  %v = reverse(%x, dims=[0]) : f32[3, 5, 4]
  %y = matmul(%v, %w, lhs_batch=[0], rhs_batch=[0], lhs_contract=[2], rhs_contract=[1]) : f32[3, 5, 2]
  output %y)"},
    {"StretchedRow", R"(
  input %x : f32[1, 4]
  input %w : f32[4, 3]
  %v = broadcast(%x, shape=[5, 4], dims=[0, 1]) : f32[5, 4]
  %y = matmul(%v, %w, lhs_contract=[1], rhs_contract=[0]) : f32[5, 3]
  output %y)"},
    {"ReshapedTransposeBackwards", R"(
  input %w : f32[3, 2]
  %t = transpose(%w, permutation=[1, 0]) : f32[2, 3]
  %r = reshape(%t, shape=[6]) : f32[6]
  %v = reverse(%r, dims=[0]) : f32[6]
  %s = slice(%v, starts=[0], limits=[4], strides=[1]) : f32[4]
  %e = exp(%s) : f32[4]
  output %e)"},
    {"ReshapedTransposeBackwardsWhole", R"(
  input %w : f32[3, 2]
  %t = transpose(%w, permutation=[1, 0]) : f32[2, 3]
  %r = reshape(%t, shape=[6]) : f32[6]
  %v = reverse(%r, dims=[0]) : f32[6]
  %e = exp(%v) : f32[6]
  output %e)"},
    {"AttentionOfReversedQueries", R"(
  input %q : f32[2, 6, 4]
  input %k : f32[2, 7, 4]
  input %v : f32[2, 7, 4]
  %r = reverse(%q, dims=[1]) : f32[2, 6, 4]
  %o, %l = attention(%r, %k, %v, scale=0.5) : f32[2, 6, 4], f32[2, 6]
  output %o
  output %l)"},
    {"AttentionOfReversedKeys", R"(
  input %q : f32[2, 6, 4]
  input %k : f32[2, 7, 4]
  input %v : f32[2, 7, 4]
  %r = reverse(%k, dims=[1]) : f32[2, 7, 4]
  %o, %l = attention(%q, %r, %v, scale=0.5, causal=true) : f32[2, 6, 4], f32[2, 6]
  output %o
  output %l)"},
    {"AttentionOfOneQuery", R"(
  input %q : f32[2, 1, 4]
  input %k : f32[2, 7, 4]
  input %v : f32[2, 7, 4]
  %r = broadcast(%q, shape=[2, 6, 4], dims=[0, 1, 2]) : f32[2, 6, 4]
  %o, %l = attention(%r, %k, %v, scale=0.5) : f32[2, 6, 4], f32[2, 6]
  output %o
  output %l)"},
    {"AttentionOfReversedHeads", R"(
  input %q : f32[2, 6, 4]
  input %k : f32[2, 7, 4]
  input %v : f32[2, 7, 4]
  %r = reverse(%v, dims=[0]) : f32[2, 7, 4]
  %o, %l = attention(%q, %k, %r, scale=0.5) : f32[2, 6, 4], f32[2, 6]
  output %o
  output %l)"},
    {"ConvolutionWithoutWindow", R"(
  input %x : f32[3, 4]
  input %w : f32[5, 4]
  %y = convolution(%x, %w, strides=[], padding_low=[], padding_high=[], dilation=[]) : f32[3, 5]
  output %y)"},
    {"ConvolutionOfFourDims", R"(
  input %x : f32[2, 3, 3, 3, 3, 3]
  input %w : f32[4, 3, 2, 2, 2, 2]
  %y = convolution(%x, %w, strides=[1, 1, 1, 1], padding_low=[0, 0, 0, 0], padding_high=[0, 0, 0, 0], dilation=[1, 1, 1, 1]) : f32[2, 4, 2, 2, 2, 2]
  output %y)"},
};

class OperandsOfCalls : public ::testing::TestWithParam<Case> {};

TEST_P(OperandsOfCalls, AreTakenOrCopied) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const Module module = parse_module("stepgraph 1\nmodule t stage logical\nsymbol batch in [1, 64]\n\ngraph @main {" + std::string(GetParam().body) + "\n}\n\nentry main @main\n");
  std::vector<Literal> inputs;
  for (const GraphInput& input : module.graph(module.entry("main")).inputs) {
    Sizes sizes;
    for (const Dim& dim : module.graph(module.entry("main")).type(input.value).shape) sizes.push_back(dim.is_constant() ? dim.constant() : 7);
    Literal value(DType::F32, sizes);
    for (int64_t i = 0; i < value.count(); ++i) value.set(i, std::sin(1.3 * static_cast<double>(i) + static_cast<double>(inputs.size())));
    inputs.push_back(std::move(value));
  }
  const std::vector<Literal> wanted = run_once(module, "main", inputs, {.backend = Backend::Reference});
  for (const Backend backend : {Backend::Full, Backend::Eager}) {
    const std::vector<Literal> found = run_once(module, "main", inputs, {.backend = backend, .threads = 2, .poison = true});
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(testing::compare_values(found[i], wanted[i], 1e-5), "") << name(backend) << ", output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, OperandsOfCalls, ::testing::ValuesIn(cases), [](const auto& info) { return std::string(info.param.name); });

}  // namespace operands_of_calls_test
}  // namespace stepgraph
