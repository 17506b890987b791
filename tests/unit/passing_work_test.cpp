// SPDX-License-Identifier: Apache-2.0
// Scatters, pooling and scans by loops against the op table's, to the bit; and that pieces give the same bits however dealt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/run/device/pool.h"
#include "stepgraph/run/device/scan.h"
#include "stepgraph/run/device/scatter.h"
#include "stepgraph/tensor/philox.h"
#include "tests/support/effort.h"
#include "tests/support/error_of.h"

namespace stepgraph {
namespace passing_work_test {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();

Literal drawn(DType dtype, const Sizes& sizes, uint64_t key) {
  Literal value(dtype, sizes);
  for (int64_t i = 0; i < value.count(); ++i) value.set(i, normal_element(key, static_cast<uint64_t>(i)) * (is_integer(dtype) ? 5 : 1));
  return value;
}
Literal numbers_below(DType dtype, const Sizes& sizes, int64_t limit) {
  Literal value(dtype, sizes);
  for (int64_t i = 0; i < value.count(); ++i)
    value.set_integer(i, static_cast<int64_t>(uniform_element(9, static_cast<uint64_t>(i), DType::F32) * static_cast<double>(limit)));
  return value;
}
Literal evaluated(const Op& op, const std::vector<Literal>& inputs, const Literal& like) {
  const std::vector<TensorType> types = {{like.dtype(), Shape(like.sizes().begin(), like.sizes().end()), {}}};
  return op_info(op).evaluate({op, inputs, types})[0];
}
Sizes dense_strides_of(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}
bool same_bits(const Literal& a, const Literal& b) {
  return a.byte_count() == b.byte_count() && (a.byte_count() == 0 || std::memcmp(a.data(), b.data(), a.byte_count()) == 0);
}

/// Each thread with scratch of its own, full of anything.
void in_parts(int64_t pieces, int64_t step, size_t scratch_bytes, const std::function<void(int64_t begin, int64_t end, void* scratch)>& run) {
  for (int64_t piece = 0; piece < pieces; piece += step) {
    std::vector<uint64_t> scratch(scratch_bytes / 8 + 8, ~uint64_t{0});
    run(piece, std::min(piece + step, pieces), scratch.data());
  }
}

struct ScatterCase {
  int64_t outer, size, inner, count;
};
void check_scatter(const ScatterCase& c, ScatterKind kind, DType dtype, DType index_dtype, bool one_index, bool has_base) {
  const Sizes out_sizes = {c.outer, c.size, c.inner}, from = {c.outer, c.count, c.inner};
  const Literal index = numbers_below(index_dtype, one_index ? Sizes{c.count} : from, c.size), updates = drawn(dtype, from, 2);
  const Literal base = has_base ? drawn(dtype, out_sizes, 3) : Literal(dtype, out_sizes);
  Op op = IndexAdd{1};
  if (!one_index && kind == ScatterKind::Add) op = ScatterAdd{1};
  if (kind != ScatterKind::Add) op = ScatterReduce{static_cast<ScatterReduceKind>(static_cast<int>(kind) - 1), 1};
  const Literal wanted = evaluated(op, {base, index, updates}, base);
  ScatterOperands operands{
      kind, dtype, index_dtype, out_sizes, {}, {from, one_index ? Sizes{0, 1, 0} : dense_strides_of(from)}, {from, dense_strides_of(from)}};
  if (has_base) operands.base = StridedOperand{out_sizes, dense_strides_of(out_sizes)};
  const ScatterWork work(operands);
  for (const int64_t step : {int64_t{1000000}, int64_t{1}, int64_t{3}}) {
    Literal found = Literal::full(dtype, out_sizes, 77);
    int64_t status[4] = {0, 0, 0, 0};
    in_parts(work.pieces(), step, work.scratch_bytes(), [&](int64_t begin, int64_t end, void* scratch) {
      work.run({base.data(), index.data(), updates.data(), found.mutable_data()}, begin, end, scratch, status);
    });
    EXPECT_TRUE(same_bits(found, wanted)) << "pieces by " << step << ": " << found.text(8) << " wanted " << wanted.text(8);
    EXPECT_EQ(status[0], 0);
    if (!has_base) continue;
    operands.in_place = true;
    const ScatterWork changing(operands);
    Literal changed = base;
    in_parts(changing.pieces(), step, changing.scratch_bytes(), [&](int64_t begin, int64_t end, void* scratch) {
      changing.run({changed.mutable_data(), index.data(), updates.data(), changed.mutable_data()}, begin, end, scratch, status);
    });
    EXPECT_TRUE(same_bits(changed, wanted)) << "in place, pieces by " << step << ": " << changed.text(8) << " wanted " << wanted.text(8);
  }
}

TEST(ScatterByParts, IsThatOfTheOracleToTheBit) {
  const std::vector<ScatterCase> cases = {{1, 5, 1, 9},      {2, 7, 3, 40},   {3, 1, 64, 5},    {1, 65, 100, 300}, {1, 3000, 80, 50}, {40, 30, 1, 60},
                                          {1, 40000, 1, 99}, {2, 600, 63, 9}, {1, 4, 40000, 3}, {2, 3, 5, 0},      {1, 9000, 5, 700}, {1, 2500, 17, 40}};
  for (const ScatterCase& c : cases) {
    for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32, DType::U8}) {
      if (testing::is_sanitized && dtype != DType::F32 && dtype != DType::U8) continue;  // a million draws of each take minutes there
      SCOPED_TRACE(::testing::Message() << c.outer << " x " << c.size << " x " << c.inner << " of " << c.count << " in " << name(dtype));
      check_scatter(c, ScatterKind::Add, dtype, DType::I64, true, false);
      check_scatter(c, ScatterKind::Add, dtype, DType::I32, true, true);
      check_scatter(c, ScatterKind::Add, dtype, DType::I64, false, false);
      if (HasFailure()) return;
    }
    for (const ScatterKind kind : {ScatterKind::Product, ScatterKind::Max, ScatterKind::Min}) check_scatter(c, kind, DType::F32, DType::I64, false, true);
    if (HasFailure()) return;
  }
}

TEST(ScatterByParts, LeavesOutABadIndexAndTells) {
  for (const int64_t size : {5, 40000, 0}) {
    for (const int64_t bad : {int64_t{-1}, size}) {
      const std::vector<int64_t> index = {0, bad, 1};
      const std::vector<float> updates = {1, 2, 3};
      std::vector<float> out(static_cast<size_t>(size) + 1, 7);
      const ScatterWork work({ScatterKind::Add, DType::F32, DType::I64, {1, size, 1}, {}, {{1, 3, 1}, {3, 1, 1}}, {{1, 3, 1}, {3, 1, 1}}});
      in_parts(work.pieces(), 1, work.scratch_bytes(), [&](int64_t begin, int64_t end, void* scratch) {
        int64_t status[4] = {0, 0, 0, 0};
        work.run({nullptr, index.data(), updates.data(), out.data()}, begin, end, scratch, status);
        EXPECT_EQ(status[0], 1);
        EXPECT_EQ(status[2], size);
        EXPECT_EQ(status[1], size > 0 ? bad : status[1]);
      });
      EXPECT_GT(work.pieces(), 0);
      EXPECT_EQ(out.back(), 7);
      EXPECT_EQ(size > 0 ? out[0] + out[1] : 4, 4);
    }
  }
}

struct PoolCase {
  Sizes x;
  std::vector<int64_t> size, strides, low, high, dilation;
};
Sizes pooled(const PoolCase& c) {
  Sizes out = {c.x[0], c.x[1]};
  for (size_t d = 0; d < c.size.size(); ++d) out.push_back((c.x[d + 2] + c.low[d] + c.high[d] - c.dilation[d] * (c.size[d] - 1) - 1) / c.strides[d] + 1);
  return out;
}
const std::vector<PoolCase> pool_cases = {{{2, 3, 12, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
                                          {{1, 4, 8, 10}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
                                          {{2, 2, 9, 7}, {3, 2}, {1, 3}, {1, 0}, {0, 1}, {2, 1}},
                                          {{1, 2, 40}, {5}, {1}, {2}, {2}, {1}},
                                          {{1, 2, 5, 6, 7}, {2, 3, 3}, {2, 1, 2}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
                                          {{1, 1, 20, 20}, {17, 16}, {1, 2}, {3, 0}, {0, 2}, {1, 1}},
                                          {{3, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
                                          {{1, 2, 33, 35}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}};

PoolWork pool_work(PoolPass pass, const PoolCase& c, const Sizes& a, const Sizes& out, DType places, bool count_padding) {
  return PoolWork({pass, a, out, places, c.size, c.strides, c.low, c.high, c.dilation, count_padding});
}

TEST(PoolByRows, MaximaAndTheirPlacesAreTheOraclesToTheBit) {
  for (const PoolCase& c : pool_cases) {
    SCOPED_TRACE(Literal(DType::F32, c.x).text(0));
    Literal x = drawn(DType::F32, c.x, 4);
    // Equal ones, infinities and NaN.
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, i % 11 == 3 ? nan : i % 7 == 2 ? -infinity : i % 5 == 1 ? 0.5 : x.at(i));
    const Sizes sizes = pooled(c);
    const Op op = Pool{PoolKind::Max, c.size, {c.strides, c.low, c.high, c.dilation}, true, {}};
    const DType place_dtype = element_count(c.size) <= 256 ? DType::U8 : DType::I32;
    const Shape shape(sizes.begin(), sizes.end());
    const std::vector<TensorType> types = {{DType::F32, shape, {}}, {place_dtype, shape, {}}};
    const std::vector<Literal> inputs = {x};
    const std::vector<Literal> wanted = op_info(op).evaluate({op, inputs, types});
    const PoolWork work = pool_work(PoolPass::Max, c, c.x, sizes, place_dtype, false);
    for (const int64_t step : {100, 1, 2}) {
      Literal values = Literal::full(DType::F32, sizes, 99), places = Literal::full(place_dtype, sizes, 99);
      in_parts(work.pieces(), step, work.scratch_bytes(), [&](int64_t begin, int64_t end, void* scratch) {
        work.run(x.as<float>().data(), reinterpret_cast<float*>(values.mutable_data()), places.mutable_data(), begin, end, scratch);
      });
      EXPECT_TRUE(same_bits(values, wanted[0])) << step << ": " << values.text(20) << " wanted " << wanted[0].text(20);
      EXPECT_TRUE(same_bits(places, wanted[1])) << step << ": " << places.text(20) << " wanted " << wanted[1].text(20);
    }
  }
}

TEST(PoolByRows, AveragesAndTheirGradientsAreTheOraclesToTheBit) {
  for (const PoolCase& c : pool_cases) {
    for (const bool count_padding : {false, true}) {
      for (const PoolPass pass : {PoolPass::Average, PoolPass::AverageGradient}) {
        SCOPED_TRACE(::testing::Message() << Literal(DType::F32, c.x).text(0) << " pass " << static_cast<int>(pass) << count_padding);
        const bool is_gradient = pass == PoolPass::AverageGradient;
        const Sizes sizes = pooled(c), &from = is_gradient ? sizes : c.x, &to = is_gradient ? c.x : sizes;
        const Literal a = drawn(DType::F32, from, 5);
        const Op op = Pool{
            static_cast<PoolKind>(pass), c.size, {c.strides, c.low, c.high, c.dilation}, count_padding, is_gradient ? Shape(to.begin(), to.end()) : Shape()};
        const Literal wanted = evaluated(op, {a}, Literal(DType::F32, to));
        const PoolWork work = pool_work(pass, c, from, to, DType::U8, count_padding);
        for (const int64_t step : {100, 1, 2}) {
          Literal found = Literal::full(DType::F32, to, 99);
          in_parts(work.pieces(), step, work.scratch_bytes(), [&](int64_t begin, int64_t end, void* scratch) {
            work.run(a.as<float>().data(), reinterpret_cast<float*>(found.mutable_data()), nullptr, begin, end, scratch);
          });
          EXPECT_TRUE(same_bits(found, wanted)) << step << ": " << found.text(20) << " wanted " << wanted.text(20);
        }
      }
    }
  }
}

TEST(PoolByRows, AWindowOutsideOfItsElementsIsAnError) {
  const PoolCase c{{1, 1, 1}, {2}, {1}, {2}, {2}, {3}};
  EXPECT_EQ(testing::error_of([&] { pool_work(PoolPass::Max, c, c.x, pooled(c), DType::U8, false); }), "max_pool: a window lies outside its elements");
}

TEST(ScanByColumns, IsThatOfTheOracleToTheBit) {
  const std::vector<std::pair<CumulativeKind, ScanKind>> kinds = {{CumulativeKind::Sum, ScanKind::Sum},
                                                                  {CumulativeKind::Product, ScanKind::Product},
                                                                  {CumulativeKind::LogSumExp, ScanKind::LogSumExp},
                                                                  {CumulativeKind::Max, ScanKind::Max},
                                                                  {CumulativeKind::Min, ScanKind::Min}};
  for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{2, 9, 70}, Sizes{5, 30, 1}, Sizes{1, 4, 33}, Sizes{2, 0, 3}}) {
    for (const auto& [kind, scan] : kinds) {
      for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I32, DType::I64}) {
        if (kind == CumulativeKind::LogSumExp && !is_floating(dtype)) continue;
        for (const bool reverse : {false, true}) {
          SCOPED_TRACE(::testing::Message() << Literal(dtype, sizes).text(0) << " kind " << static_cast<int>(kind) << reverse);
          Literal x = drawn(dtype, sizes, 6);
          if (is_floating(dtype) && x.count() > 20) x.set(7, nan), x.set(12, -infinity);
          const Literal wanted = evaluated(Cumulative{kind, 1, reverse}, {x}, x);
          const ScanWork work({scan, dtype, reverse, {sizes, dense_strides_of(sizes)}});
          for (const int64_t step : {100, 1, 2}) {
            Literal found = Literal::full(dtype, sizes, 3);
            in_parts(work.pieces(), step, 0, [&](int64_t begin, int64_t end, void*) { work.run(x.data(), found.mutable_data(), begin, end); });
            EXPECT_TRUE(same_bits(found, wanted)) << step << ": " << found.text(20) << " wanted " << wanted.text(20);
          }
        }
      }
    }
  }
}

}  // namespace passing_work_test
}  // namespace stepgraph
