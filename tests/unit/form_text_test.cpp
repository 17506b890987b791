// SPDX-License-Identifier: Apache-2.0
// Forms as text: every kind of expression, constants to the bit, and what check refuses.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/program/form_text.h"

namespace stepgraph {
namespace form_text_test {

const std::string every_expression = R"(form sizes 4 {
  factor i0 = s0
  factor i1 = floordiv(s1 + 127, 128)
  factor i2 = 128 block_of i1 total s1
  operand 0 read f32
  operand 1 read i64
  operand 2 read write bf16
  operand 3 write f32
  %0 = load 0 [s1*i0 + 128*i1 + i2] : f32
  %1 = load 1 [i0] : i64
  %2 = constant 1.5 : f32
  %3 = load 0 [i0 + (-1)] index %1 < s2 stride 64 index %1 < 7 stride 2*s2 + 1 where [i0 + -1*i1 + s3] < s0 where [2*i1] < 9 else %2 : f32
  %4 = index [i0 + (2*s1 - 3)] : i64
  %5 = neg %0 : f32
  %6 = mul %5, %3 : f32
  %7 = lt %5, %2 : bool
  %8 = select %7, %6, %2 : f32
  %9 = convert %8 : i64
  %10 = random_normal %1, %9 : f32
  %11 = fold %1, %4 : i64
  %12 = sum over i1, i2 of %6 : f32
  %13 = arg_max over i2 of %6 : i64
  %14 = arg_min over i2 of %6 : i64
  %15 = load 2 [i0] : bf16
  %16 = any over i1, i2 of %7 : bool
  store 2 [i0] = %15
  store 3 [s1*i0 + 128*i1 + i2] = %10
}
)";

/// What prints canonically differs from what reads: an address says (-1) for its constant.
std::string canonical(std::string text) {
  for (size_t at; (at = text.find("(-1)")) != std::string::npos;) text.replace(at, 4, "-1");
  return text;
}

TEST(FormText, EveryExpressionReadsBack) {
  const Form form = parse_form(every_expression);
  EXPECT_EQ(text(form), canonical(every_expression));
  EXPECT_EQ(parse_form(text(form)), form);
  EXPECT_EQ(form.exprs.size(), 17u);
  EXPECT_EQ(form_hash(form), form_hash(parse_form(text(form))));
  Form other = form;
  other.factors[0].size = 5;
  EXPECT_NE(form_hash(other), form_hash(form));
  EXPECT_NO_THROW(check(form));
}

TEST(FormText, EveryKindOfElementReadsBack) {
  Form form;
  form.operands = {{DType::F32, true, false}};
  form.exprs.push_back({LoadExpr{}, {}, DType::F32});
  for (size_t i = 0; i < unary_names.size(); ++i) form.exprs.push_back({UnaryExpr{static_cast<UnaryKind>(i)}, {0}, DType::F32});
  for (size_t i = 0; i < binary_names.size(); ++i) form.exprs.push_back({BinaryExpr{static_cast<BinaryKind>(i)}, {0, 0}, DType::F32});
  for (size_t i = 0; i < compare_names.size(); ++i) form.exprs.push_back({CompareExpr{static_cast<CompareKind>(i)}, {0, 0}, DType::Bool});
  for (size_t i = 0; i < reduce_kind_names.size(); ++i) form.exprs.push_back({ReduceExpr{static_cast<ReduceKind>(i), {0}}, {0}, DType::F32});
  EXPECT_EQ(parse_form(text(form)), form);
}

TEST(FormText, ConstantsKeepTheirBits) {
  const struct {
    DType dtype;
    uint64_t bits;
    std::string text;
  } cases[] = {
      {DType::F32, std::bit_cast<uint32_t>(1.0f), "constant 1 : f32"},
      {DType::F32, std::bit_cast<uint32_t>(0.1f), "constant 0.1 : f32"},
      {DType::F32, std::bit_cast<uint32_t>(-0.0f), "constant -0 : f32"},
      {DType::F32, 0x7f800000, "constant inf : f32"},
      {DType::F32, 0x7fc00000, "constant nan : f32"},
      {DType::F32, 0xffc00001, "constant bits xffc00001 : f32"},
      {DType::F64, std::bit_cast<uint64_t>(-1e300), "constant -1e+300 : f64"},
      {DType::BF16, 0x3f80, "constant 1 : bf16"},
      {DType::F16, 0x0001, "constant 6e-08 : f16"},
      {DType::I64, static_cast<uint64_t>(INT64_MIN), "constant -9223372036854775808 : i64"},
      {DType::I8, 0xff, "constant -1 : i8"},
      {DType::U8, 0xff, "constant 255 : u8"},
      {DType::U8, 0x1ff, "constant bits x1ff : u8"},
      {DType::Bool, 1, "constant true : bool"},
      {DType::Bool, 2, "constant bits x2 : bool"},
  };
  for (const auto& one : cases) {
    Form form;
    form.exprs = {{ConstantExpr{one.bits}, {}, one.dtype}};
    SCOPED_TRACE(one.text);
    EXPECT_EQ(parse_form(text(form)), form);
    EXPECT_EQ(expr_text(form, 0), "%0 = " + one.text);
  }
}

TEST(FormText, LongStatementsAreBroken) {
  Form form;
  for (int i = 0; i < 60; ++i) form.factors.push_back({.size = 2});
  form.operands = {{DType::F32, true, false}};
  LoadExpr load;
  for (int i = 0; i < 60; ++i) load.at.terms.push_back({i, 1 << (i % 20)});
  form.exprs = {{load, {}, DType::F32}};
  const std::string printed = text(form);
  size_t longest = 0, begin = 0;
  for (size_t end; (end = printed.find('\n', begin)) != std::string::npos; begin = end + 1) longest = std::max(longest, end - begin);
  EXPECT_LE(longest, 160u);
  EXPECT_GT(longest, 100u);
  EXPECT_EQ(parse_form(printed), form);
}

/// A form of one row, with statements put in.
std::string form_of(const std::string& statements) { return "form sizes 1 {\n  factor i0 = s0\n  factor i1 = 8\n" + statements + "}\n"; }

TEST(FormText, CheckRefusesWhatIsNoForm) {
  const std::string io = "operand 0 read f32\noperand 1 write f32\n", load = io + "%0 = load 0 [8*i0 + i1] : f32\n";
  const struct {
    std::string text, message;
  } cases[] = {
      {"operand 0 read f32\n%0 = load 1 [i0] : f32\n", "%0: operand 1 does not exist, there are 1"},
      {io + "%0 = load 1 [i0] : f32\n", "%0: operand 1 is not read by declaration"},
      {io + "%0 = load 0 [i0] : f64\n", "%0: is f64, wanted f32"},
      {io + "%0 = load 0 [i2] : f32\n", "%0: factor i2 does not exist, there are 2"},
      {io + "%0 = load 0 [s1*i0] : f32\n", "%0: coefficient s1: the form has 1 sizes, 's1' is none of them"},
      {io + "%0 = load 0 [n] : f32\n", "constant n: the form has 1 sizes, 'n' is none of them"},
      {io + "%0 = load 0 [0*i0] : f32\n", "has the coefficient 0"},
      {load + "%1 = load 0 [i0] index %0 < 8 stride 1 : f32\n", "%1: input 0 is f32, wanted i64"},
      {load + "%1 = add %0, %0 : f64\n", "%1: is f64, wanted f32"},
      {load + "%1 = convert %0 : f64\n%2 = add %0, %1 : f32\n", "%2: input 1 is f64, wanted f32"},
      {load + "%1 = not %0 : f32\n", "%1: not does not take f32"},
      {load + "%1 = is_nan %0 : f32\n", "%1: is f32, wanted bool"},
      {load + "%1 = lt %0, %0 : f32\n", "%1: is f32, wanted bool"},
      {load + "%1 = select %0, %0, %0 : f32\n", "%1: input 0 is f32, wanted bool"},
      {load + "%1 = add %0 : f32\n", "%1: found 1 inputs, wanted 2"},
      {load + "%1 = neg %0 : f32\n%2 = neg %0 : f32\n", "%2: another value is the same"},
      {load + "%1 = sum over i2 of %0 : f32\n", "%1: factor i2 does not exist"},
      {load + "%1 = sum over i1, i0 of %0 : f32\n", "%1: factors stand once, in ascending order"},
      {load + "%1 = any over i1 of %0 : f32\n", "%1: any does not take f32"},
      {load + "%1 = arg_max over i1 of %0 : f32\n", "%1: is f32, wanted i64"},
      {load + "%1 = fold %0, %0 : i64\n", "%1: input 0 is f32, wanted i64"},
      {"%0 = constant bits x100 : u8\n", "%0: bits beyond the 8 of u8"},
      {load + "store 0 [8*i0 + i1] = %0\n", "store 0: operand 0 is not written by declaration"},
      {load + "store 1 [i0] = %0\n", "store 0: %0 varies over i1, which is not in [i0]"},
      {load + "%1 = sum over i0 of %0 : f32\nstore 1 [i0] = %1\n", "store 0: %1 varies over i1"},
      {load + "%1 = convert %0 : f64\nstore 1 [8*i0 + i1] = %1\n", "store 0: is f64, wanted f32"},
      {"operand 0 read write f32\n%0 = load 0 [i0 + 1] : f32\nstore 0 [i0] = %0\n", "%0: operand 0 is changed in place at [i0] and read at [i0 + 1]"},
      {"factor i2 = 4 block_of i3 total 8\n", "i2: cut into the blocks of i3, wanted a factor before it"},
      {"factor i2 = s1\n", "i2: size s1: the form has 1 sizes"},
      {"factor i2 = 4 block_of i0 total 8\noperand 0 write i64\n%0 = index [i2] : i64\nstore 0 [i2] = %0\n", "store 0: %0 varies over i0"},
  };
  for (const auto& one : cases) {
    const Form form = parse_form(form_of(one.text));
    SCOPED_TRACE(one.text);
    try {
      check(form);
      ADD_FAILURE() << "no error, wanted: " << one.message;
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(one.message), std::string::npos) << "found: " << error.what() << "\nwanted: " << one.message;
    }
  }
  EXPECT_NO_THROW(check(parse_form(form_of(load + "%1 = sum over i1 of %0 : f32\nstore 1 [i0] = %1\n"))));
}

}  // namespace form_text_test
}  // namespace stepgraph
