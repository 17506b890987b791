// SPDX-License-Identifier: Apache-2.0
// Generated code of forms without reductions against the interpreter of forms.
#include <gtest/gtest.h>

#include <limits>

#include <fmt/core.h>

#include "stepgraph/compile/codegen/emit_form.h"
#include "tests/support/form_maker.h"

namespace stepgraph {
namespace codegen_pointwise_test {

using testing::CompiledForm;
using testing::difference;
using testing::FormMaker;
using testing::FormResult;
using testing::run_by_interpreter;
using testing::run_form;
using testing::some_values;

constexpr DType all_dtypes[] = {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool};

/// A few units of the last place for approximations, nothing else.
double tolerance_of(UnaryKind kind, DType dtype) {
  switch (kind) {
    case UnaryKind::Exp:
    case UnaryKind::Log:
    case UnaryKind::Tanh:
    case UnaryKind::Erf:
    case UnaryKind::Sin:
    case UnaryKind::Cos:
    case UnaryKind::Sigmoid:
    case UnaryKind::Rsqrt: return dtype == DType::F32 ? 2.5e-7 : dtype == DType::F16 ? 1e-3 : dtype == DType::BF16 ? 8e-3 : 4e-16;
    default: return 0;
  }
}

void expect_as_interpreted(const Form& form, const std::vector<Literal>& operands, const std::string& what, double relative = 0, double absolute = 0,
                           const std::vector<int64_t>& sizes = {}) {
  const FormResult wanted = run_by_interpreter(form, operands, sizes);
  const CompiledForm compiled(form);
  const FormResult found = compiled.run(operands, sizes);
  for (size_t k = 0; k < operands.size(); ++k) EXPECT_EQ(difference(found.operands[k], wanted.operands[k], relative, absolute), "") << what << " operand " << k;
  EXPECT_EQ(found.bad.has_value(), wanted.bad.has_value()) << what;
  for (const int64_t cut : {1, 3}) {
    const FormResult again = compiled.run(operands, sizes, cut);
    for (size_t k = 0; k < operands.size(); ++k) EXPECT_TRUE(again.operands[k] == found.operands[k]) << what << " cut in " << cut << " operand " << k;
  }
}

TEST(CodegenPointwise, UnaryKindsOfAllDTypes) {
  for (size_t k = 0; k < unary_names.size(); ++k) {
    const auto kind = static_cast<UnaryKind>(k);
    for (const DType dtype : all_dtypes) {
      if (!can_emit(kind, dtype)) continue;
      FormMaker maker;
      const int i = maker.factor(45), x = maker.reads(dtype);
      const int value = maker.unary(kind, maker.load(x, FormMaker::at({{i, 1}})));
      const int y = maker.writes(maker.type(value));
      maker.store(y, FormMaker::at({{i, 1}}), value);
      const std::vector<Literal> operands = {some_values(dtype, 45, static_cast<uint32_t>(k)), Literal(maker.type(value), {45})};
      const FormResult found = run_form(maker.form, operands), wanted = run_by_interpreter(maker.form, operands);
      EXPECT_EQ(difference(found.operands[1], wanted.operands[1], tolerance_of(kind, dtype)), "") << name(kind) << " of " << name(dtype);
    }
  }
  EXPECT_FALSE(can_emit(UnaryKind::Erfinv, DType::F32));
  EXPECT_FALSE(can_emit(UnaryKind::Exp, DType::I32));
  EXPECT_FALSE(can_emit(UnaryKind::Not, DType::F32));
}

/// y = 1 / x of some elements, y watched.
FormResult watched_reciprocals(DType dtype, std::vector<double> values, bool is_watched = true) {
  const auto count = static_cast<int64_t>(values.size());
  FormMaker maker;
  const int i = maker.factor(Dim::symbol("s0")), x = maker.reads(dtype), y = maker.writes(dtype);
  maker.form.size_count = 1;
  maker.form.operands[static_cast<size_t>(y)].is_watched = is_watched;
  maker.store(y, FormMaker::at({{i, 1}}), maker.binary(BinaryKind::Divide, maker.constant(dtype, 1), maker.load(x, FormMaker::at({{i, 1}}))));
  Literal given(dtype, {count});
  for (int64_t k = 0; k < count; ++k) given.set(k, values[static_cast<size_t>(k)]);
  return CompiledForm(maker.form).run({given, Literal(dtype, {count})}, {count});
}

/// Lanes beyond the last element hold 1 / 0, and are nobody's.
TEST(CodegenPointwise, WatchedStoresAreNoticedWhereTheyAreNotFinite) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    for (const int count : {1, 16, 45}) {
      std::vector<double> values(static_cast<size_t>(count), 2);
      EXPECT_FALSE(watched_reciprocals(dtype, values).is_noticed) << name(dtype) << " " << count;
      for (const int bad : {0, count / 2, count - 1}) {
        std::vector<double> with_zero = values;
        with_zero[static_cast<size_t>(bad)] = 0;
        EXPECT_TRUE(watched_reciprocals(dtype, with_zero).is_noticed) << name(dtype) << " " << bad << " of " << count;
        EXPECT_FALSE(watched_reciprocals(dtype, with_zero, false).is_noticed);
        with_zero[static_cast<size_t>(bad)] = std::numeric_limits<double>::quiet_NaN();
        EXPECT_TRUE(watched_reciprocals(dtype, with_zero).is_noticed) << name(dtype) << " NaN " << bad << " of " << count;
      }
    }
  }
}

Literal without_zeros(Literal values) {
  for (int64_t k = 0; k < values.count(); ++k) {
    if (values.integer_at(k) == 0) values.set_integer(k, k % 2 == 0 ? 3 : -1);
  }
  return values;
}

TEST(CodegenPointwise, BinaryKindsOfAllDTypes) {
  for (size_t k = 0; k < binary_names.size(); ++k) {
    const auto kind = static_cast<BinaryKind>(k);
    for (const DType dtype : all_dtypes) {
      if (!can_emit(kind, dtype)) continue;
      FormMaker maker;
      const int i = maker.factor(77), x = maker.reads(dtype), y = maker.reads(dtype), z = maker.writes(dtype);
      const Affine at = FormMaker::at({{i, 1}});
      const int a = maker.load(x, at), b = maker.load(y, at);
      maker.store(z, at, maker.binary(kind, a, b));
      const bool divides = kind == BinaryKind::FloorDivide || kind == BinaryKind::Remainder;
      Literal second = some_values(dtype, 77, static_cast<uint32_t>(k) + 50);
      if (divides && !is_floating(dtype)) second = without_zeros(second);
      const std::vector<Literal> operands = {some_values(dtype, 77, static_cast<uint32_t>(k)), second, Literal(dtype, {77})};
      const FormResult found = run_form(maker.form, operands), wanted = run_by_interpreter(maker.form, operands);
      EXPECT_EQ(difference(found.operands[2], wanted.operands[2], 0), "") << name(kind) << " of " << name(dtype);
    }
  }
}

TEST(CodegenPointwise, AnIntegerDivisionByZeroIsTold) {
  for (const BinaryKind kind : {BinaryKind::FloorDivide, BinaryKind::Remainder})
    for (const DType dtype : {DType::I64, DType::I32, DType::I8, DType::U8})
      for (const int64_t zero : {int64_t{-1}, int64_t{0}, int64_t{18}, int64_t{20}}) {
        FormMaker maker;
        const int i = maker.factor(21), x = maker.reads(dtype), z = maker.writes(dtype);
        const Affine at = FormMaker::at({{i, 1}});
        maker.store(z, at, maker.binary(kind, maker.constant(dtype, 7), maker.load(x, at)));
        Literal divisors = Literal::full(dtype, {21}, 2);
        if (zero >= 0) divisors.set_integer(zero, 0);
        const FormResult found = run_form(maker.form, {divisors, Literal(dtype, {21})});
        EXPECT_EQ(found.bad.has_value(), zero >= 0) << name(kind) << " " << name(dtype) << " " << zero;
        EXPECT_EQ(found.operands[1].integer_at(1), kind == BinaryKind::FloorDivide ? 3 : 1);
      }
}

TEST(CodegenPointwise, ComparisonsAndSelect) {
  for (size_t k = 0; k < compare_names.size(); ++k)
    for (const DType dtype : all_dtypes) {
      FormMaker maker;
      const int i = maker.factor(50), x = maker.reads(dtype), y = maker.reads(dtype), z = maker.writes(dtype), c = maker.writes(DType::Bool);
      const Affine at = FormMaker::at({{i, 1}});
      const int a = maker.load(x, at), b = maker.load(y, at), holds = maker.compare(static_cast<CompareKind>(k), a, b);
      maker.store(c, at, holds);
      maker.store(z, at, maker.select(holds, b, a));
      Literal first = some_values(dtype, 50, 3), second = some_values(dtype, 50, 4);
      for (int64_t e = 0; e < 50; e += 3) second.set(e, first.at(e));
      expect_as_interpreted(maker.form, {first, second, Literal(dtype, {50}), Literal(DType::Bool, {50})},
                            fmt::format("{} of {}", compare_names[k], name(dtype)));
    }
}

TEST(CodegenPointwise, ConversionsOfAllPairs) {
  for (const DType from : all_dtypes)
    for (const DType to : all_dtypes) {
      ASSERT_TRUE(can_convert(from, to));
      FormMaker maker;
      const int i = maker.factor(333), x = maker.reads(from), y = maker.writes(to);
      const Affine at = FormMaker::at({{i, 1}});
      maker.store(y, at, maker.convert(maker.load(x, at), to));
      Literal values = some_values(from, 333, 11);
      // Near ties of halves, whose rounding through another dtype goes wrong; and limits of integers.
      const double near[] = {1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-30, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11, 65519.999999, 65520,  3.3895313892515355e38,
                             0x1p-25,    0x1p-25 + 0x1p-60,    2147483647.5,          -128.9,      255.5,        9.3e18, -9.3e18};
      if (is_floating(from)) {
        for (size_t k = 0; k < std::size(near); ++k) values.set(static_cast<int64_t>(k), near[k]);
      } else if (from == DType::I64 || from == DType::I32) {
        const int64_t whole[] = {
            16777217, 16842752, 16842753, 33685505, (int64_t{257} << 40) + 1, (int64_t{257} << 54) + 1, -((int64_t{257} << 54) + 1), INT64_MAX, INT64_MIN,
            65520,    2049,     2051,     4097};
        for (size_t k = 0; k < std::size(whole); ++k) values.set_integer(static_cast<int64_t>(k), whole[k]);
      }
      expect_as_interpreted(maker.form, {values, Literal(to, {333})}, fmt::format("{} to {}", name(from), name(to)));
    }
}

TEST(CodegenPointwise, SizesAroundVectors) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F64, DType::U8, DType::Bool})
    for (const int64_t size : {0, 1, 15, 16, 17, 100, 5000})
      for (const bool symbolic : {false, true}) {
        FormMaker maker;
        maker.form.size_count = symbolic ? 1 : 0;
        const int i = maker.factor(symbolic ? Dim::symbol("s0") : Dim(size)), x = maker.reads(dtype), y = maker.writes(dtype);
        const Affine at = FormMaker::at({{i, 1}});
        const int a = maker.load(x, at);
        maker.store(y, at, dtype == DType::Bool ? maker.unary(UnaryKind::Not, a) : maker.binary(BinaryKind::Add, a, a));
        expect_as_interpreted(maker.form, {some_values(dtype, size, 5), Literal(dtype, {size})}, fmt::format("{} of {}", size, name(dtype)), 0, 0,
                              symbolic ? std::vector<int64_t>{size} : std::vector<int64_t>{});
      }
}

TEST(CodegenPointwise, BroadcastsTransposesReversalsAndSteps) {
  for (const DType dtype : {DType::F32, DType::F16, DType::I64, DType::I8}) {
    FormMaker maker;
    const int i = maker.factor(7), j = maker.factor(37);
    const int whole = maker.reads(dtype), row = maker.reads(dtype), column = maker.reads(dtype), turned = maker.reads(dtype), out = maker.writes(dtype),
              back = maker.writes(dtype), wide = maker.writes(dtype);
    const Affine dense = FormMaker::at({{i, 37}, {j, 1}});
    int sum = maker.load(whole, dense);
    sum = maker.binary(BinaryKind::Add, sum, maker.load(row, FormMaker::at({{j, 1}})));
    sum = maker.binary(BinaryKind::Add, sum, maker.load(column, FormMaker::at({{i, 1}})));
    sum = maker.binary(BinaryKind::Multiply, sum, maker.load(turned, FormMaker::at({{i, 1}, {j, 7}})));
    sum = maker.binary(BinaryKind::Subtract, sum, maker.load(whole, FormMaker::at({{i, 37}, {j, -1}}, 36)));
    maker.store(out, dense, sum);
    maker.store(back, FormMaker::at({{i, 37}, {j, -1}}, 36), sum);
    maker.store(wide, FormMaker::at({{i, 1}, {j, 7}}), maker.load(row, FormMaker::at({{j, 1}})));
    const auto values = [&](int64_t count, uint32_t seed) { return some_values(dtype, count, seed, false); };
    expect_as_interpreted(maker.form,
                          {values(259, 1), values(37, 2), values(7, 3), values(259, 4), Literal(dtype, {259}), Literal(dtype, {259}), Literal(dtype, {259})},
                          std::string(name(dtype)));
  }
}

TEST(CodegenPointwise, PaddingConcatenationAndOneElement) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::I32, DType::Bool})
    for (const int64_t low : {0, 3, 20}) {
      // [5, 30] into the middle of [8, 60], with another value around; and two stores into the halves of one operand.
      FormMaker maker;
      const int i = maker.factor(8), j = maker.factor(60), x = maker.reads(dtype), y = maker.writes(dtype), both = maker.writes(dtype),
                one = maker.writes(dtype);
      LoadExpr load{x, FormMaker::at({{i, 30}, {j, 1}}, -30 * 2 - low), {{FormMaker::at({{i, 1}}, -2), 5}, {FormMaker::at({{j, 1}}, -low), 30}}, {}};
      const int padded = maker.expr(load, {maker.constant(dtype, 1)}, dtype);
      maker.store(y, FormMaker::at({{i, 60}, {j, 1}}), padded);
      maker.store(both, FormMaker::at({{i, 120}, {j, 1}}), padded);
      maker.store(both, FormMaker::at({{i, 120}, {j, 1}}, 60), maker.constant(dtype, 0));
      maker.store(one, FormMaker::at({}), maker.load(x, FormMaker::at({}, 4)));
      expect_as_interpreted(maker.form, {some_values(dtype, 150, 8), Literal(dtype, {480}), Literal(dtype, {960}), Literal(dtype, {1})},
                            fmt::format("{} from {}", name(dtype), low));
    }
}

TEST(CodegenPointwise, ReadsThroughIndices) {
  for (const DType dtype : {DType::F32, DType::F16, DType::U8})
    for (const bool by_lane : {false, true})
      for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{9}, INT64_MIN}) {
        // Rows of a table of [9, 21] for 6 numbers; with `by_lane` one number for each element.
        FormMaker maker;
        const int i = maker.factor(6), j = maker.factor(21), table = maker.reads(dtype), numbers = maker.reads(DType::I64), y = maker.writes(dtype);
        const int number =
            maker.load(numbers, FormMaker::at(by_lane ? std::vector<std::pair<int, Dim>>{{i, 21}, {j, 1}} : std::vector<std::pair<int, Dim>>{{i, 21}}));
        const int row = maker.expr(LoadExpr{table, FormMaker::at({{j, 1}}), {}, {{21, 9}}}, {number}, dtype);
        maker.store(y, FormMaker::at({{i, 21}, {j, 1}}), row);
        Literal indices(DType::I64, {126});
        for (int64_t k = 0; k < 126; ++k) indices.set_integer(k, k * 5 % 9);
        if (bad != 0) indices.set_integer(42, bad);
        const std::vector<Literal> operands = {some_values(dtype, 189, 3), indices, Literal(dtype, {126})};
        const FormResult found = run_form(maker.form, operands), wanted = run_by_interpreter(maker.form, operands);
        EXPECT_EQ(found.bad.has_value(), bad != 0);
        if (found.bad) {
          EXPECT_EQ(found.bad->index, bad);
          EXPECT_EQ(found.bad->size, 9);
        }
        for (int64_t k = 0; k < 126; ++k) {
          const bool is_bad = bad != 0 && (by_lane ? k == 42 : k / 21 == 2);
          if (!is_bad) {
            EXPECT_EQ(found.operands[2].integer_at(k), wanted.operands[2].integer_at(k)) << k;
          }
        }
      }
}

TEST(CodegenPointwise, AnIndexBehindAGuardIsNotLookedAt) {
  FormMaker maker;
  const int i = maker.factor(40), table = maker.reads(DType::F32), numbers = maker.reads(DType::I64), y = maker.writes(DType::F32);
  const Affine at = FormMaker::at({{i, 1}});
  const int row = maker.expr(LoadExpr{table, FormMaker::at({}), {{at, 33}}, {{1, 9}}}, {maker.load(numbers, at), maker.constant(DType::F32, -3)}, DType::F32);
  maker.store(y, at, row);
  Literal indices(DType::I64, {40});
  for (int64_t k = 33; k < 40; ++k) indices.set_integer(k, 1000000);
  expect_as_interpreted(maker.form, {some_values(DType::F32, 9, 3), indices, Literal(DType::F32, {40})}, "guarded");
}

TEST(CodegenPointwise, DrawsAndFoldsAreThoseOfTheOracle) {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
    for (const RandomKind kind : {RandomKind::Uniform, RandomKind::Normal}) {
      FormMaker maker;
      const int i = maker.factor(3), j = maker.factor(41), key = maker.reads(DType::I64), y = maker.writes(dtype), folds = maker.writes(DType::I64);
      const int number = maker.number(FormMaker::at({{i, 1000}, {j, 3}}, (int64_t{1} << 33) + 2));
      const int folded = maker.expr(FoldExpr{}, {maker.load(key, FormMaker::at({})), number}, DType::I64);
      maker.store(y, FormMaker::at({{i, 41}, {j, 1}}), maker.expr(DrawExpr{kind}, {maker.load(key, FormMaker::at({})), number}, dtype));
      maker.store(folds, FormMaker::at({{i, 41}, {j, 1}}), folded);
      expect_as_interpreted(maker.form, {Literal::integer(DType::I64, 0x123456789abcdef), Literal(dtype, {123}), Literal(DType::I64, {123})},
                            std::string(name(dtype)));
    }
}

/// p, m, v in place of their gradient and of two scalars, as an optimizer does.
TEST(CodegenPointwise, UpdatesInPlace) {
  for (const int64_t size : {1, 64, 1000}) {
    FormMaker maker;
    maker.form.size_count = 1;
    const int i = maker.factor(Dim::symbol("s0"));
    const int p = maker.updates(DType::F32), m = maker.updates(DType::F32), v = maker.updates(DType::F32), g = maker.reads(DType::F32),
              rate = maker.reads(DType::F32);
    const Affine at = FormMaker::at({{i, 1}});
    const auto real = [&](double value) { return maker.constant(DType::F32, value); };
    const auto times = [&](int a, int b) { return maker.binary(BinaryKind::Multiply, a, b); };
    const auto plus = [&](int a, int b) { return maker.binary(BinaryKind::Add, a, b); };
    const int grad = maker.load(g, at), lr = maker.load(rate, FormMaker::at({}));
    const int m_new = plus(times(real(0.9), maker.load(m, at)), times(real(0.1), grad));
    const int v_new = plus(times(real(0.999), maker.load(v, at)), times(real(0.001), times(grad, grad)));
    const int step = maker.binary(BinaryKind::Divide, m_new, plus(maker.unary(UnaryKind::Sqrt, v_new), real(1e-8)));
    maker.store(m, at, m_new);
    maker.store(v, at, v_new);
    maker.store(p, at, maker.binary(BinaryKind::Subtract, maker.load(p, at), times(lr, plus(step, times(real(0.01), maker.load(p, at))))));
    const auto values = [&](uint32_t seed) { return some_values(DType::F32, size, seed, false); };
    Literal positive = values(3);
    for (int64_t k = 0; k < size; ++k) positive.set(k, std::abs(positive.at(k)));
    expect_as_interpreted(maker.form, {values(1), values(2), positive, values(4), Literal::scalar(DType::F32, 1e-3)}, "adamw", 0, 0, {size});
  }
}

TEST(CodegenPointwise, BlocksOfAFactorEndWithIt) {
  // 100 elements in blocks of 24: block b, element r of it.
  for (const bool blocks_inside : {false, true}) {
    FormMaker maker;
    const int b = maker.factor(5), k = blocks_inside ? -1 : maker.factor(3), r = maker.factor(24), l = blocks_inside ? maker.factor(3) : k;
    maker.form.factors[static_cast<size_t>(r)].block_of = b;
    maker.form.factors[static_cast<size_t>(r)].total = 100;
    const int x = maker.reads(DType::F32), y = maker.writes(DType::F32);
    const Affine at = FormMaker::at({{b, 72}, {r, 3}, {l, 1}});
    maker.store(y, at, maker.unary(UnaryKind::Negate, maker.load(x, at)));
    expect_as_interpreted(maker.form, {some_values(DType::F32, 300, 3), Literal(DType::F32, {300})}, "blocks");
  }
}

TEST(CodegenPointwise, EqualFormsGiveEqualBytes) {
  FormMaker maker;
  const int i = maker.factor(1000), x = maker.reads(DType::F32), y = maker.writes(DType::F32);
  const Affine at = FormMaker::at({{i, 1}});
  maker.store(y, at, maker.unary(UnaryKind::Sin, maker.unary(UnaryKind::Exp, maker.load(x, at))));
  Target target;
  const FormCode first = emit_form(maker.form, target), second = emit_form(maker.form, target);
  EXPECT_TRUE(first == second);
  target.isa = InstructionSet::Avx512;
  const FormCode other = emit_form(maker.form, target);
  EXPECT_EQ(other.symbol, first.symbol);
  EXPECT_NE(other.object, first.object);
  target.isa = InstructionSet::Avx2;
  maker.form.factors[0].size = 1001;
  EXPECT_NE(emit_form(maker.form, target).symbol, first.symbol);
}

}  // namespace codegen_pointwise_test
}  // namespace stepgraph
