// SPDX-License-Identifier: Apache-2.0
// Mean and variance far from zero, where E[x²]-E[x]² has no digit left, and over every set of dims.
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph {
namespace ops_moments_test {

/// Rows of m + i/256, i = 0..31, all exact in f32.
Literal rows(DType dtype, const std::vector<double>& offsets) {
  Literal value(dtype, {static_cast<int64_t>(offsets.size()), 32});
  for (int64_t i = 0; i < value.count(); ++i) value.set(i, offsets[static_cast<size_t>(i / 32)] + static_cast<double>(i % 32) / 256);
  return value;
}
std::vector<Literal> run(const Literal& x, const std::function<std::vector<Value>(Value)>& build) {
  Module module;
  const GraphId main = module.add_graph("main");
  Builder builder(module, main);
  const Value input = builder.input({x.dtype(), Shape(x.sizes().begin(), x.sizes().end()), {}});
  for (const Value& value : build(input)) builder.output(value);
  return evaluate_graph(module, main, std::vector<Literal>{x});
}
Value normalised(Value x) {
  const MeanVariance m = moments(x, {1}, true);
  return (x - m.mean) * rsqrt(m.variance + 1e-5);
}

TEST(Moments, NothingCancelsFarFromZero) {
  const Literal x = rows(DType::F32, {0, 64, 512, 4096, -4096});
  const std::vector<Literal> got = run(x, [](Value v) {
    const MeanVariance m = moments(v, {1});
    return std::vector<Value>{m.mean, m.variance, normalised(v)};
  });
  const double variance = (32.0 * 32 - 1) / 12 / 65536;
  const double offsets[] = {0, 64, 512, 4096, -4096};
  for (int64_t r = 0; r < 5; ++r) {
    EXPECT_EQ(got[0].at(r), offsets[r] + 31.0 / 512);
    EXPECT_EQ(got[1].at(r), round_to(DType::F32, variance));
    EXPECT_NEAR(got[2].at(32 * r), -1.6723, 1e-4);
  }
}

TEST(Moments, GradientsFarFromZero) {
  const auto gradient = [](Value x) {
    // A weight for each column, so that the gradient is not zero by symmetry.
    const Value weight = sin(iota(*x.builder, x.dtype(), x.shape(), 1));
    const Value loss = sum(normalised(x) * weight);
    return std::vector<Value>{gradients(*x.builder, loss, std::vector<Value>{x}).at(0).value()};
  };
  const Literal narrow = run(rows(DType::F32, {0, 512, 4096}), gradient).at(0), wide = run(rows(DType::F64, {0, 512, 4096}), gradient).at(0);
  double largest = 0;
  for (int64_t i = 0; i < wide.count(); ++i) largest = std::max(largest, std::fabs(wide.at(i)));
  for (int64_t i = 0; i < wide.count(); ++i) EXPECT_NEAR(narrow.at(i), wide.at(i), 5e-5 * largest) << i;
}

TEST(Moments, AnySetOfDims) {
  Literal x(DType::F64, {3, 2, 5});
  for (int64_t i = 0; i < x.count(); ++i) x.set(i, std::sin(static_cast<double>(i * i)));
  for (const Dims& dims : std::vector<Dims>{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}) {
    const std::vector<Literal> got = run(x, [&](Value v) {
      const MeanVariance m = moments(v, dims);
      const Value plain = mean(v, dims, true);
      return std::vector<Value>{m.mean, m.variance, mean(v, dims), mean((v - plain) * (v - plain), dims)};
    });
    ASSERT_EQ(got[0].sizes(), got[2].sizes());
    for (int64_t i = 0; i < got[0].count(); ++i) {
      EXPECT_NEAR(got[0].at(i), got[2].at(i), 1e-15);
      EXPECT_NEAR(got[1].at(i), got[3].at(i), 1e-15);
    }
  }
  // No dim: each element is its own mean.
  const std::vector<Literal> self = run(x, [](Value v) { return v.builder->emit(Moments{{}}, {v}); });
  EXPECT_TRUE(self[0] == x);
  EXPECT_EQ(self[1].to_doubles(), std::vector<double>(30, 0.0));
}

}  // namespace ops_moments_test
}  // namespace stepgraph
