// SPDX-License-Identifier: Apache-2.0
// Generated code of forms with reductions against the interpreter of forms, and the order of sums against the words of form.h.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/codegen/schedule.h"
#include "tests/support/form_maker.h"

namespace stepgraph {
namespace codegen_reductions_test {

using testing::CompiledForm;
using testing::difference;
using testing::FormMaker;
using testing::FormResult;
using testing::run_by_interpreter;
using testing::run_form;
using testing::some_values;

Affine at(std::vector<std::pair<int, Dim>> terms, Dim constant = 0) { return FormMaker::at(std::move(terms), std::move(constant)); }

void expect_as_interpreted(const Form& form, const std::vector<Literal>& operands, const std::string& what, double relative, double absolute = 0,
                           const std::vector<int64_t>& sizes = {}) {
  const FormResult wanted = run_by_interpreter(form, operands, sizes);
  const CompiledForm compiled(form);
  const FormResult found = compiled.run(operands, sizes);
  for (size_t k = 0; k < operands.size(); ++k) EXPECT_EQ(difference(found.operands[k], wanted.operands[k], relative, absolute), "") << what << " operand " << k;
  for (const int64_t cut : {1, 2}) {
    const FormResult again = compiled.run(operands, sizes, cut);
    for (size_t k = 0; k < operands.size(); ++k) EXPECT_TRUE(again.operands[k] == found.operands[k]) << what << " cut in " << cut << " operand " << k;
  }
}

/// One unit of the last place or less: the interpreter adds in f64.
double ulps(DType dtype, double count) {
  return count * (dtype == DType::F64 ? 0x1p-52 : dtype == DType::F32 ? 0x1p-23 : dtype == DType::F16 ? 0x1p-10 : dtype == DType::BF16 ? 0x1p-7 : 0);
}

/// x [rows, columns] reduced over one of the two.
struct Reduced {
  FormMaker maker;
  std::vector<Literal> operands;
};
Reduced reduced(ReduceKind kind, DType dtype, int64_t rows, int64_t columns, bool over_rows, const Literal& values, bool symbolic) {
  FormMaker maker;
  maker.form.size_count = symbolic ? 2 : 0;
  const int i = maker.factor(symbolic ? Dim::symbol("s0") : Dim(rows)), j = maker.factor(symbolic ? Dim::symbol("s1") : Dim(columns));
  const Dim width = maker.form.factors[static_cast<size_t>(j)].size;
  const int x = maker.reads(dtype), y = maker.writes(dtype);
  const int sum = maker.reduce(kind, maker.load(x, at({{i, width}, {j, 1}})), {over_rows ? i : j});
  maker.store(y, at({{over_rows ? j : i, 1}}), sum);
  return {maker, {values, Literal(dtype, {over_rows ? columns : rows})}};
}

TEST(CodegenReductions, RowsAndColumnsOfAllKinds) {
  for (const ReduceKind kind : {ReduceKind::Sum, ReduceKind::Product, ReduceKind::Max, ReduceKind::Min, ReduceKind::Any, ReduceKind::All})
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool}) {
      const bool logical = kind == ReduceKind::Any || kind == ReduceKind::All;
      if (logical != (dtype == DType::Bool)) continue;
      for (const bool over_rows : {false, true})
        for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 100}, {5, 16}, {40, 7}, {3, 130}}) {
          const bool smooth = kind == ReduceKind::Sum || kind == ReduceKind::Product;
          const Literal values = some_values(dtype, rows * columns, static_cast<uint32_t>(rows + columns), !smooth);
          const Reduced form = reduced(kind, dtype, rows, columns, over_rows, values, columns == 7);
          const std::vector<int64_t> sizes = columns == 7 ? std::vector<int64_t>{rows, columns} : std::vector<int64_t>{};
          const std::string what = fmt::format("{} of {} [{}, {}] over {}", name(kind), name(dtype), rows, columns, over_rows ? "rows" : "columns");
          // Sums cancel: their errors are of what was added.
          expect_as_interpreted(form.maker.form, form.operands, what,
                                kind == ReduceKind::Product ? ulps(dtype, 30)
                                : smooth                    ? ulps(dtype, 1)
                                                            : 0,
                                kind == ReduceKind::Sum && is_floating(dtype)        ? ulps(dtype == DType::F64 ? DType::F64 : DType::F32, 100)
                                : kind == ReduceKind::Max || kind == ReduceKind::Min ? 1e-300
                                                                                     : 0,
                                sizes);
        }
    }
}

TEST(CodegenReductions, NothingGivesTheNeutralElement) {
  for (const ReduceKind kind : {ReduceKind::Sum, ReduceKind::Product, ReduceKind::Max, ReduceKind::Min})
    for (const DType dtype : {DType::F32, DType::BF16, DType::I32, DType::U8})
      for (const bool over_rows : {false, true})
        for (const bool symbolic : {false, true}) {
          const int64_t rows = over_rows ? 0 : 3, columns = over_rows ? 3 : 0;
          const Reduced form = reduced(kind, dtype, rows, columns, over_rows, Literal(dtype, {0}), symbolic);
          const FormResult found = run_form(form.maker.form, form.operands, symbolic ? std::vector<int64_t>{rows, columns} : std::vector<int64_t>{});
          constexpr double infinity = std::numeric_limits<double>::infinity();
          const bool real = is_floating(dtype), whole = dtype == DType::U8;
          const double low = real ? -infinity : whole ? 0 : INT32_MIN, high = real ? infinity : whole ? 255 : INT32_MAX;
          const double wanted = kind == ReduceKind::Sum ? 0 : kind == ReduceKind::Product ? 1 : kind == ReduceKind::Max ? low : high;
          for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(found.operands[1].at(k), wanted) << name(kind) << " of " << name(dtype);
        }
}

/// The words of form.h, for a row of floats.
float sum_of_row(const float* x, int64_t count) {
  double totals[16] = {};
  for (int64_t low = 0; low < count; low += 4096) {
    float sums[16] = {};
    for (int64_t k = low; k < std::min(count, low + 4096); ++k) sums[k % 16] += x[k];
    for (int lane = 0; lane < 16; ++lane) totals[lane] += sums[lane];
  }
  for (int half = 8; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) totals[lane] += totals[lane + half];
  return static_cast<float>(totals[0]);
}

TEST(CodegenReductions, SumsAreInTheOrderOfTheContract) {
  for (const int64_t count : {1, 15, 16, 100, 4096, 4097, 10000})
    for (const bool symbolic : {false, true}) {
      const Literal values = some_values(DType::F32, 2 * count, 77, false);
      const Reduced rows = reduced(ReduceKind::Sum, DType::F32, 2, count, false, values, symbolic);
      const std::vector<int64_t> sizes = symbolic ? std::vector<int64_t>{2, count} : std::vector<int64_t>{};
      const FormResult found = run_form(rows.maker.form, rows.operands, sizes);
      const float* x = values.as<float>().data();
      for (int64_t row = 0; row < 2; ++row) EXPECT_EQ(found.operands[1].as<float>()[static_cast<size_t>(row)], sum_of_row(x + row * count, count)) << count;
      // Down a column: one lane an element, blocks of as many rows.
      const Reduced columns = reduced(ReduceKind::Sum, DType::F32, count, 2, true, values, symbolic);
      const FormResult down = run_form(columns.maker.form, columns.operands, symbolic ? std::vector<int64_t>{count, 2} : std::vector<int64_t>{});
      for (int64_t column = 0; column < 2; ++column) {
        double total = 0;
        for (int64_t low = 0; low < count; low += 4096) {
          float sum = 0;
          for (int64_t k = low; k < std::min(count, low + 4096); ++k) sum += x[k * 2 + column];
          total += sum;
        }
        EXPECT_EQ(down.operands[1].as<float>()[static_cast<size_t>(column)], static_cast<float>(total)) << count;
      }
    }
}

Form softmax(DType dtype, Dim rows, Dim columns, bool in_place) {
  FormMaker maker;
  maker.form.size_count = 2;
  const int i = maker.factor(std::move(rows)), j = maker.factor(columns);
  const int x = in_place ? maker.updates(dtype) : maker.reads(dtype), y = in_place ? x : maker.writes(dtype);
  const Affine dense = at({{i, columns}, {j, 1}});
  const int value = maker.convert(maker.load(x, dense), DType::F32);
  const int most = maker.reduce(ReduceKind::Max, value, {j});
  const int e = maker.unary(UnaryKind::Exp, maker.binary(BinaryKind::Subtract, value, most));
  const int sum = maker.reduce(ReduceKind::Sum, e, {j});
  maker.store(y, dense, maker.convert(maker.binary(BinaryKind::Divide, e, sum), dtype));
  return maker.form;
}

TEST(CodegenReductions, SoftmaxComputesExpOnceAndMayBeInPlace) {
  const FormSchedule schedule = schedule_form(softmax(DType::F32, 4, 100, false));
  ASSERT_EQ(schedule.kept.size(), 1U);
  EXPECT_EQ(schedule.phases, 3);
  EXPECT_EQ(schedule.kept[0].phase, 1);
  EXPECT_EQ(schedule.scratch_bytes, Dim(512));
  for (const DType dtype : {DType::F32, DType::F16})
    for (const int64_t columns : {1, 16, 33, 100, 5000})
      for (const bool symbolic : {false, true})
        for (const bool in_place : {false, true}) {
          const Form form = symbolic ? softmax(dtype, Dim::symbol("s0"), Dim::symbol("s1"), in_place) : softmax(dtype, 3, columns, in_place);
          std::vector<Literal> operands = {some_values(dtype, 3 * columns, 5, false)};
          if (!in_place) operands.emplace_back(dtype, Sizes{3 * columns});
          expect_as_interpreted(form, operands, fmt::format("{} {}", name(dtype), columns), ulps(dtype, dtype == DType::F32 ? 6 : 1), 0, {3, columns});
        }
}

Form layer_norm(int64_t rows, int64_t columns) {
  FormMaker maker;
  const int i = maker.factor(rows), j = maker.factor(columns), x = maker.reads(DType::F32), w = maker.reads(DType::F32), y = maker.writes(DType::F32),
            mean_out = maker.writes(DType::F32);
  const Affine dense = at({{i, columns}, {j, 1}});
  const auto real = [&](double value) { return maker.constant(DType::F32, value); };
  const auto mean_of = [&](int v) {
    return maker.binary(BinaryKind::Multiply, maker.reduce(ReduceKind::Sum, v, {j}), real(1.0 / static_cast<double>(columns)));
  };
  const int mean = mean_of(maker.load(x, dense));
  const int centred = maker.binary(BinaryKind::Subtract, maker.load(x, dense), mean);
  const int variance = mean_of(maker.binary(BinaryKind::Multiply, centred, centred));
  const int scale = maker.unary(UnaryKind::Rsqrt, maker.binary(BinaryKind::Add, variance, real(1e-5)));
  maker.store(y, dense, maker.binary(BinaryKind::Multiply, maker.binary(BinaryKind::Multiply, centred, scale), maker.load(w, at({{j, 1}}))));
  maker.store(mean_out, at({{i, 1}}), mean);
  return maker.form;
}

TEST(CodegenReductions, LayerNormKeepsItsDigitsFarFromZero) {
  for (const double offset : {0.0, 64.0, 512.0, 4096.0}) {
    Literal x(DType::F32, {64});
    for (int64_t k = 0; k < 64; ++k) x.set(k, offset + static_cast<double>(k % 32) / 256);
    const FormResult found = run_form(layer_norm(2, 32), {x, Literal::full(DType::F32, {32}, 1), Literal(DType::F32, {64}), Literal(DType::F32, {2})});
    EXPECT_NEAR(found.operands[2].at(0), -1.6723, 5e-4) << offset;
    EXPECT_NEAR(found.operands[2].at(63), 1.6723, 5e-4) << offset;
    EXPECT_NEAR(found.operands[3].at(1), offset + 15.5 / 256, 1e-6 * offset + 1e-7);
  }
  for (const int64_t columns : {1, 17, 384}) {
    expect_as_interpreted(layer_norm(5, columns),
                          {some_values(DType::F32, 5 * columns, 1, false), some_values(DType::F32, columns, 2, false), Literal(DType::F32, {5 * columns}),
                           Literal(DType::F32, {5})},
                          fmt::format("{}", columns), 1e-6, 3e-6);
  }
}

TEST(CodegenReductions, TheFirstLargestAndNanBeatsAll) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I32, DType::U8})
    for (const bool largest : {false, true})
      for (const bool down : {false, true})
        for (const int64_t count : {1, 16, 17, 50, 200}) {
          FormMaker maker;
          const int first = maker.factor(down ? count : 9), second = maker.factor(down ? 9 : count);
          const int i = down ? second : first, j = down ? first : second, x = maker.reads(dtype), y = maker.writes(DType::I64);
          maker.store(y, at({{i, 1}}), maker.arg_reduce(largest, maker.load(x, at({{i, count}, {j, 1}})), j));
          Literal values(dtype, {9 * count});
          const Literal noise = some_values(dtype, 9 * count, static_cast<uint32_t>(count));
          for (int64_t row = 0; row < 9; ++row)
            for (int64_t k = 0; k < count; ++k) {
              // Rows of one value alone, of few values with ties, with infinities, and of anything with NaN.
              const int64_t e = row * count + k;
              if (row < 2)
                values.set(e, 3);
              else if (row < 4)
                values.set(e, static_cast<double>(k * 7 % 5));
              else if (row == 4)
                values.set(e, is_floating(dtype) ? (largest ? -1 : 1) * std::numeric_limits<double>::infinity() : 1);
              else
                values.set(e, noise.at(e));
            }
          expect_as_interpreted(maker.form, {values, Literal(DType::I64, {9})}, fmt::format("{} {} {}", name(dtype), count, down), 0);
        }
}

TEST(CodegenReductions, OverSeveralFactorsAndWindows) {
  for (const DType dtype : {DType::F32, DType::F16}) {
    // Mean over [b, h, w] of x [b, c, h, w] at c, with what varies over all of it stored too.
    FormMaker maker;
    const int c = maker.factor(3), b = maker.factor(2), h = maker.factor(5), w = maker.factor(21), x = maker.reads(dtype), y = maker.writes(dtype),
              s = maker.writes(dtype);
    const Affine dense = at({{c, 105}, {b, 315}, {h, 21}, {w, 1}});
    const int value = maker.load(x, dense), sum = maker.reduce(ReduceKind::Sum, value, {b, h, w});
    maker.store(y, dense, maker.binary(BinaryKind::Subtract, value, sum));
    maker.store(s, at({{c, 1}}), sum);
    expect_as_interpreted(maker.form, {some_values(dtype, 630, 1, false), Literal(dtype, {630}), Literal(dtype, {3})}, "channels", ulps(dtype, 1),
                          ulps(DType::F32, 100));

    // Largest of windows 3 x 3 of [9, 70] with a border, channels last.
    FormMaker pool;
    const int r = pool.factor(9), q = pool.factor(14), dr = pool.factor(3), dq = pool.factor(3), k = pool.factor(5), in = pool.reads(dtype),
              out = pool.writes(dtype);
    LoadExpr window{in, at({{r, 70}, {q, 5}, {dr, 70}, {dq, 5}, {k, 1}}, -75), {{at({{r, 1}, {dr, 1}}, -1), 9}, {at({{q, 1}, {dq, 1}}, -1), 14}}, {}};
    const int element = pool.expr(window, {pool.constant(dtype, -std::numeric_limits<double>::infinity())}, dtype);
    pool.store(out, at({{r, 70}, {q, 5}, {k, 1}}), pool.reduce(ReduceKind::Max, element, {dr, dq}));
    expect_as_interpreted(pool.form, {some_values(dtype, 630, 2, false), Literal(dtype, {630})}, "windows", 0);
  }
}

TEST(CodegenReductions, PiecesOfAReducedFactor) {
  // 1000 rows in blocks of 96, summed block by block: partial sums as an outer reduction leaves them, over rows and along them.
  for (const bool along : {false, true}) {
    FormMaker maker;
    const int b = maker.factor(11), k = along ? maker.factor(7) : -1, r = maker.factor(96), l = along ? k : maker.factor(70);
    maker.form.factors[static_cast<size_t>(r)].block_of = b;
    maker.form.factors[static_cast<size_t>(r)].total = 1000;
    const int64_t width = along ? 7 : 70;
    const int x = maker.reads(DType::F32), y = maker.writes(DType::F32);
    const Affine from = along ? at({{b, 96}, {k, 1000}, {r, 1}}) : at({{b, 96 * width}, {r, width}, {l, 1}});
    maker.store(y, at({{b, width}, {l, 1}}), maker.reduce(ReduceKind::Sum, maker.load(x, from), {r}));
    expect_as_interpreted(maker.form, {some_values(DType::F32, 1000 * width, 2, false), Literal(DType::F32, {11 * width})}, along ? "along" : "down",
                          ulps(DType::F32, 1), ulps(DType::F32, 300));
  }
}

TEST(CodegenReductions, FormsThatCannotBeAreRefused) {
  FormMaker maker;
  const int i = maker.factor(3), j = maker.factor(4), x = maker.reads(DType::F32), y = maker.writes(DType::F32);
  const int value = maker.load(x, at({{i, 4}, {j, 1}}));
  maker.store(y, at({{i, 1}, {j, 1}}), maker.binary(BinaryKind::Add, maker.reduce(ReduceKind::Sum, value, {i}), maker.reduce(ReduceKind::Sum, value, {j})));
  EXPECT_THROW(schedule_form(maker.form), InternalError);
  FormMaker other;
  const int k = other.factor(3), u = other.reads(DType::F32), v = other.writes(DType::F32);
  other.store(v, at({}), other.load(u, at({{k, 1}})));  // varies over k, stored once
  EXPECT_THROW(schedule_form(other.form), InternalError);
}

}  // namespace codegen_reductions_test
}  // namespace stepgraph
