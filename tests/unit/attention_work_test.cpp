// SPDX-License-Identifier: Apache-2.0
// Attention by blocks against the op table's plain loops: layouts, masks, shared heads, rows that see nothing; and that pieces give the same bits however
// dealt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "stepgraph/compile/ops/kernels/attention.h"
#include "stepgraph/run/device/attention.h"
#include "stepgraph/run/device/attention_rows.h"
#include "stepgraph/tensor/philox.h"

namespace stepgraph {
namespace attention_work_test {

class AttentionByBlocks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_libraries()) GTEST_SKIP() << "a build without libraries";
    load_libraries({});
    use_no_library_threads();
  }
};

/// Heads inside of rows, [N, T, H, D], as an operand [N, H, T, D]; with a gap after each row.
struct Placed {
  Placed(Sizes sizes_of_operand, bool heads_inside, uint64_t key) : operand{std::move(sizes_of_operand), {}} {
    const Sizes& s = operand.sizes;
    const int64_t gap = heads_inside ? 5 : 0;
    if (heads_inside)
      operand.strides = {s[2] * (s[1] * s[3] + gap), s[3], s[1] * s[3] + gap, 1};
    else
      operand.strides = {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1};
    memory.assign(static_cast<size_t>(s[0] * s[1] * s[2] * s[3] + s[0] * s[2] * gap + 1), std::numeric_limits<float>::quiet_NaN());
    if (key != 0) each([&](size_t at, int64_t i) { memory[at] = static_cast<float>(normal_element(key, static_cast<uint64_t>(i))); });
  }
  template <class Body>
  void each(const Body& body) const {
    const Sizes &s = operand.sizes, &t = operand.strides;
    for (int64_t i = 0; i < element_count(s); ++i)
      body(static_cast<size_t>(i % s[3] + i / s[3] % s[2] * t[2] + i / s[3] / s[2] % s[1] * t[1] + i / s[3] / s[2] / s[1] * t[0]), i);
  }
  Literal literal() const {
    Literal value(DType::F32, operand.sizes);
    each([&](size_t at, int64_t i) { value.set(i, static_cast<double>(memory[at])); });
    return value;
  }
  StridedOperand operand;
  std::vector<float> memory;
};

struct Shapes {
  int64_t n = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, depth = 1, value_depth = 1;
};

struct Case {
  Case(const Shapes& s, bool inside)
      : q({s.n, s.heads, s.queries, s.depth}, inside, 1),
        k({s.n, s.key_heads, s.keys, s.depth}, inside, 2),
        v({s.n, s.key_heads, s.keys, s.value_depth}, inside, 3),
        out({s.n, s.heads, s.queries, s.value_depth}, inside, 0),
        lse({s.n, s.heads, s.queries, 1}, false, 0),
        d_out({s.n, s.heads, s.queries, s.value_depth}, inside, 4),
        d_lse({s.n, s.heads, s.queries, 1}, false, 5),
        d_q({s.n, s.heads, s.queries, s.depth}, inside, 0),
        d_k({s.n, s.key_heads, s.keys, s.depth}, inside, 0),
        d_v({s.n, s.key_heads, s.keys, s.value_depth}, inside, 0) {
    operands.q = q.operand, operands.k = k.operand, operands.v = v.operand, operands.out = out.operand, operands.lse = lse.operand;
    operands.scale = 0.4;
  }
  /// Keys that are seen, or what is added, [N, 1, T, S] without the dim of heads.
  void give_mask(DType dtype, const Shapes& s) {
    mask = Literal(dtype, {s.n, 1, s.queries, s.keys});
    for (int64_t i = 0; i < mask->count(); ++i) {
      const double draw = uniform_element(6, static_cast<uint64_t>(i), DType::F32);
      mask->set(i, dtype == DType::Bool ? draw < 0.7 : draw < 0.2 ? -std::numeric_limits<double>::infinity() : draw);
      if (i / s.keys % s.queries == 1) mask->set(i, dtype == DType::Bool ? 0 : -std::numeric_limits<double>::infinity());
    }
    operands.mask = StridedOperand{{s.n, s.heads, s.queries, s.keys}, {s.queries * s.keys, 0, s.keys, 1}};
    operands.mask_dtype = dtype;
  }
  std::vector<void*> pointers() {
    return {q.memory.data(),     k.memory.data(),     v.memory.data(),   out.memory.data(), lse.memory.data(), mask ? mask->mutable_data() : nullptr,
            &key,                d_out.memory.data(), d_lse.memory.data(), d_q.memory.data(), d_k.memory.data(), d_v.memory.data()};
  }
  void run(GemmLibrary library, int64_t step) {
    AttentionOperands of_gradient = operands;
    of_gradient.gradient = {d_out.operand, d_lse.operand, d_q.operand, d_k.operand, d_v.operand};
    for (const AttentionOperands& each : {operands, of_gradient}) {
      const AttentionWork work(library, each);
      std::vector<std::byte> scratch(work.scratch_bytes() + 64);
      const std::vector<void*> at = pointers();
      for (int64_t piece = 0; piece < work.pieces(); piece += step) work.run(at.data(), piece, std::min(piece + step, work.pieces()), scratch.data());
    }
  }
  Placed q, k, v, out, lse, d_out, d_lse, d_q, d_k, d_v;
  std::optional<Literal> mask;
  int64_t key = 0x123456789ABCDEF;
  AttentionOperands operands;
};

void expect_near(const Placed& found, const Literal& wanted, const char* what) {
  double size = 1;
  for (int64_t i = 0; i < wanted.count(); ++i)
    if (std::isfinite(wanted.at(i))) size = std::max(size, std::abs(wanted.at(i)));
  found.each([&](size_t at, int64_t i) {
    const auto value = static_cast<double>(found.memory[at]);
    if (std::isfinite(wanted.at(i)))
      EXPECT_NEAR(value, wanted.at(i), 3e-6 * size) << what << " at " << i;
    else
      EXPECT_EQ(value, wanted.at(i)) << what << " at " << i;
  });
}

void check(Case& c) {
  AttentionGradient op;
  op.scale = c.operands.scale, op.causal = c.operands.causal;
  const Sizes &q = c.q.operand.sizes, &k = c.k.operand.sizes;
  if (c.operands.dropout) {
    op.dropout = c.operands.dropout->rate;
    op.place = {{q[0] + 1, q[1], q[2] + 2, k[2] + 3}, {1, 0, 2, 1}};
    const int64_t row = k[2] + 3, head = row * (q[2] + 2), image = head * q[1];
    c.operands.dropout = AttentionOperands::Dropout{op.dropout, image + 2 * row + 1, image, head, row};
  }
  std::vector<Literal> inputs = {c.q.literal(), c.k.literal(), c.v.literal()};
  if (c.mask) inputs.push_back(*c.mask);
  if (c.operands.dropout) inputs.push_back(Literal::integer(DType::I64, c.key));
  const auto type = [](const Sizes& sizes) { return TensorType{DType::F32, Shape(sizes.begin(), sizes.end()), {}}; };
  Sizes rows = c.lse.operand.sizes;
  rows.pop_back();
  const std::vector<TensorType> types = {type(c.out.operand.sizes), type(rows)};
  const std::vector<Literal> results = evaluate_attention(op, inputs, types);
  inputs.insert(inputs.end(), {results[0], results[1], c.d_out.literal(), c.d_lse.literal().reshaped(rows)});
  const std::vector<TensorType> gradient_types = {type(c.q.operand.sizes), type(c.k.operand.sizes), type(c.v.operand.sizes)};
  const std::vector<Literal> gradients = evaluate_attention_gradient(op, inputs, gradient_types);
  for (const GemmLibrary library : {GemmLibrary::OpenBlas, GemmLibrary::OneDnn}) {
    c.run(library, 1000);
    expect_near(c.out, results[0], "out");
    expect_near(c.lse, results[1], "lse");
    expect_near(c.d_q, gradients[0], "d_q");
    expect_near(c.d_k, gradients[1], "d_k");
    expect_near(c.d_v, gradients[2], "d_v");
  }
  const auto bits = [&] { return std::vector{c.out.literal(), c.lse.literal(), c.d_q.literal(), c.d_k.literal(), c.d_v.literal()}; };
  const std::vector<Literal> whole = bits();
  for (const int64_t step : {1, 3}) {
    c.run(GemmLibrary::OneDnn, step);
    EXPECT_TRUE(bits() == whole) << "pieces by " << step;
  }
}

TEST_F(AttentionByBlocks, IsThatOfTheOracle) {
  const std::vector<Shapes> shapes = {{1, 1, 1, 1, 1, 1, 1},     {2, 4, 2, 70, 70, 8, 8},   {2, 3, 3, 5, 9, 4, 7},
                                      {1, 6, 1, 130, 64, 16, 5}, {3, 2, 2, 64, 200, 3, 16}, {1, 2, 1, 9, 1, 2, 2},     {1, 1, 1, 95, 40, 4, 4},  {1, 1, 1, 97, 97, 4, 4}};
  for (const Shapes& s : shapes) {
    for (int flags = 0; flags < 24; ++flags) {
      SCOPED_TRACE(::testing::Message() << "queries " << s.queries << ", keys " << s.keys << ", flags " << flags);
      Case c(s, (flags & 1) != 0);
      c.operands.causal = (flags & 2) != 0;
      if (flags >= 12) c.operands.dropout = AttentionOperands::Dropout{s.queries == 1 ? 1 : 0.3, 0, 0, 0, 0};
      if (flags / 4 % 3 == 1) c.give_mask(DType::Bool, s);
      if (flags / 4 % 3 == 2) c.give_mask(s.queries % 2 != 0 ? DType::BF16 : DType::F32, s);
      check(c);
      if (HasFailure()) return;
    }
  }
}

TEST_F(AttentionByBlocks, WithoutQueriesOrKeys) {
  Case none({1, 2, 1, 3, 0, 4, 2}, false);
  check(none);
  Case nobody({1, 2, 1, 0, 3, 4, 2}, false);
  check(nobody);
}

/// Large scores, infinities and NaN go where the oracle's go.
TEST_F(AttentionByBlocks, LargeScoresAndNaN) {
  Case large({1, 1, 1, 20, 33, 4, 4}, false);
  for (float& x : large.q.memory) x *= 60;
  large.run(GemmLibrary::OpenBlas, 1);
  const std::vector<Literal> wanted = evaluate_attention(Attention{.scale = 0.4}, std::vector{large.q.literal(), large.k.literal(), large.v.literal()},
                                                         std::vector{TensorType{DType::F32, {1, 1, 20, 4}, {}}, TensorType{DType::F32, {1, 1, 20}, {}}});
  large.out.each([&](size_t at, int64_t i) { EXPECT_NEAR(static_cast<double>(large.out.memory[at]), wanted[0].at(i), 1e-4); });
  Case spoilt({1, 1, 1, 20, 33, 4, 4}, false);
  spoilt.q.memory[4 * 7 + 1] = std::numeric_limits<float>::quiet_NaN();
  spoilt.run(GemmLibrary::OpenBlas, 1);
  spoilt.out.each([&](size_t at, int64_t i) { EXPECT_EQ(std::isnan(spoilt.out.memory[at]), i / 4 == 7); });
}

TEST_F(AttentionByBlocks, ExponentialsAreRightToTwoUnits) {
  double worst = 0;
  std::vector<float> row(16);
  for (int64_t i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(-87.29 * static_cast<double>(i) / 200000);
    row.assign(16, x);
    exp_row(row.data(), 13);
    const double wanted = std::exp(static_cast<double>(x));
    const double unit = static_cast<double>(std::nextafter(static_cast<float>(wanted), 2.0F)) - static_cast<double>(static_cast<float>(wanted));
    worst = std::max({worst, std::abs(static_cast<double>(row[0]) - wanted) / unit, std::abs(static_cast<double>(row[12]) - wanted) / unit});
    ASSERT_EQ(row[13], x);
  }
  EXPECT_LE(worst, 2.0);
  std::vector<float> ends = {0, -std::numeric_limits<float>::infinity(), -1000, std::numeric_limits<float>::quiet_NaN(), -87.4F};
  exp_row(ends.data(), 5);
  EXPECT_EQ(ends[0], 1);
  EXPECT_EQ(ends[1], 0);
  EXPECT_EQ(ends[2], 0);
  EXPECT_TRUE(std::isnan(ends[3]));
  EXPECT_EQ(ends[4], 0);
}

}  // namespace attention_work_test
}  // namespace stepgraph
