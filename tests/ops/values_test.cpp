// SPDX-License-Identifier: Apache-2.0
// Values at corners: IEEE infinities and NaN, ties, wrapping integers, empty reductions, random numbers, and gradients where a rule is easy to get wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace values_test {

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

Literal row(std::vector<double> values, DType dtype = DType::F64) { return Literal::from_doubles(dtype, {static_cast<int64_t>(values.size())}, values); }
Literal integers(DType dtype, std::vector<int64_t> values) {
  return Literal::from_integers(dtype, {static_cast<int64_t>(values.size())}, values);
}

void expect_values(const Literal& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.count(), static_cast<int64_t>(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double value = got.at(static_cast<int64_t>(i));
    if (std::isnan(wanted[i])) {
      EXPECT_TRUE(std::isnan(value)) << "element " << i << " is " << value;
    } else {
      EXPECT_DOUBLE_EQ(value, wanted[i]) << "element " << i;
      EXPECT_EQ(std::signbit(value), std::signbit(wanted[i])) << "element " << i;
    }
  }
}

using Function = std::function<Value(Builder&, std::span<const Value>)>;
Literal run_one(std::vector<Literal> inputs, const Function& f) {
  return run_graph(inputs, [&](Builder& builder, std::span<const Value> values) { return std::vector<Value>{f(builder, values)}; }).at(0);
}
/// Gradient of the sum of f by the first input.
Literal gradient_of(std::vector<Literal> inputs, const Function& f) {
  return run_one(inputs, [&](Builder& builder, std::span<const Value> values) {
    return *gradients(builder, sum(f(builder, values)), std::vector<Value>{values[0]}).at(0);
  });
}
Literal unary_value(UnaryKind kind, const Literal& x) { return run_sample(Unary{kind}, std::vector<Literal>{x}).at(0); }
Literal binary_value(BinaryKind kind, const Literal& a, const Literal& b) { return run_sample(Binary{kind}, std::vector<Literal>{a, b}).at(0); }

TEST(Values, UnaryCorners) {
  expect_values(unary_value(UnaryKind::Round, row({0.5, 1.5, 2.5, -0.5, -1.5})), {0, 2, 2, -0.0, -2});
  expect_values(unary_value(UnaryKind::Sign, row({-3, 0, 2, nan, inf})), {-1, 0, 1, nan, 1});
  expect_values(unary_value(UnaryKind::Relu, row({-3, 0, 2, nan, -inf, inf})), {0, 0, 2, nan, 0, inf});
  expect_values(unary_value(UnaryKind::Sigmoid, row({-1000, 0, 1000, nan})), {0, 0.5, 1, nan});
  expect_values(unary_value(UnaryKind::Sqrt, row({0, -0.0, -1, inf})), {0, -0.0, nan, inf});
  expect_values(unary_value(UnaryKind::Log, row({0, 1, -1, inf})), {-inf, 0, nan, inf});
  expect_values(unary_value(UnaryKind::Expm1, row({1e-20, -inf, 0})), {1e-20, -1, 0});
  expect_values(unary_value(UnaryKind::Log1p, row({1e-20, -1, inf})), {1e-20, -inf, inf});
  expect_values(unary_value(UnaryKind::Reciprocal, row({0, -0.0, inf})), {inf, -inf, 0});
  expect_values(unary_value(UnaryKind::IsFinite, row({0, inf, nan, -inf})), {1, 0, 0, 0});
  expect_values(unary_value(UnaryKind::IsNan, row({0, inf, nan})), {0, 0, 1});
}

/// Against values from tables (NIST's Digital Library of Mathematical Functions; the constants of Euler and Apéry).
TEST(Values, SpecialFunctions) {
  const auto near = [](const Literal& got, const std::vector<double>& wanted) {
    ASSERT_EQ(got.count(), static_cast<int64_t>(wanted.size()));
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double value = got.at(static_cast<int64_t>(i));
      if (std::isnan(wanted[i])) EXPECT_TRUE(std::isnan(value)) << i;
      else if (std::isinf(wanted[i])) EXPECT_EQ(value, wanted[i]) << i;
      else EXPECT_NEAR(value, wanted[i], 4e-15 * std::max(1.0, std::fabs(wanted[i]))) << i;
    }
  };
  constexpr double euler = 0.57721566490153286061, apery = 1.20205690315959428540, pi = 3.14159265358979323846;
  near(unary_value(UnaryKind::Lgamma, row({1, 0.5, 10, 0, -1, -0.5, inf})), {0, std::log(pi) / 2, std::log(362880), inf, inf, std::log(2 * std::sqrt(pi)), inf});
  const auto polygamma = [](int64_t order, const Literal& x) { return run_sample(Polygamma{order}, std::vector<Literal>{x}).at(0); };
  near(polygamma(0, row({1, 0.5, -0.5, 0, -2, 1e10, inf})), {-euler, -euler - 2 * std::log(2), 2 - euler - 2 * std::log(2), -inf, nan, std::log(1e10) - 0.5e-10, inf});
  near(polygamma(1, row({1, 0.5, -0.5, -1, 30})), {pi * pi / 6, pi * pi / 2, pi * pi / 2 + 4, inf, 0.03389506035773994});
  near(polygamma(2, row({1, 0.5, -0.5})), {-2 * apery, -14 * apery, -14 * apery + 16});
  near(unary_value(UnaryKind::Erfinv, row({0, 0.5, -0.5, 1, -1, 1.5})), {0, 0.47693627620446987, -0.47693627620446987, inf, -inf, nan});
  for (double x : {1e-12, 0.3, 0.9, 0.999999, 1 - 1e-14}) EXPECT_NEAR(std::erf(unary_value(UnaryKind::Erfinv, row({x})).at(0)), x, 2e-16);
  near(unary_value(UnaryKind::Log2, row({8, 0})), {3, -inf});
  near(unary_value(UnaryKind::Erfc, row({10, -inf})), {2.0884875837625447e-45, 2});
}

/// The last of equal ones has the gradient; NaN stays.
TEST(Values, RunningExtremes) {
  const auto run = [](CumulativeKind kind, const Literal& x, bool reverse) { return run_sample(Cumulative{kind, 0, reverse}, std::vector<Literal>{x}).at(0); };
  expect_values(run(CumulativeKind::Max, row({1, 3, 3, 2, nan, 5}), false), {1, 3, 3, 3, nan, nan});
  expect_values(run(CumulativeKind::Min, row({4, 3, 5}), true), {3, 3, 5});
  expect_values(run(CumulativeKind::Max, integers(DType::I32, {-7, -9, 2}), false), {-7, -7, 2});
  const Function running = [](Builder& builder, std::span<const Value> x) { return builder.emit_one(Cumulative{CumulativeKind::Max, 0, false}, {x[0]}); };
  expect_values(gradient_of({row({1, 3, 3, 2})}, running), {1, 1, 2, 0});
}

TEST(Values, ScattersThatReduce) {
  const auto run = [](ScatterReduceKind kind, const Literal& base, const Literal& updates) {
    return run_sample(ScatterReduce{kind, 0}, std::vector<Literal>{base, integers(DType::I64, {0, 0, 2}), updates}).at(0);
  };
  expect_values(run(ScatterReduceKind::Max, row({1, 7, nan}), row({2, -1, 5})), {2, 7, nan});
  expect_values(run(ScatterReduceKind::Min, row({1, 7, 6}), row({2, nan, 5})), {nan, 7, 5});
  expect_values(run(ScatterReduceKind::Product, integers(DType::U8, {16, 7, 3}), integers(DType::U8, {16, 2, 5})), {0, 7, 15});
  // One zero among three factors: only it has a gradient.
  const Function product = [](Builder& builder, std::span<const Value> x) {
    return builder.emit_one(ScatterReduce{ScatterReduceKind::Product, 0}, {full(builder, DType::F64, {1}, 2), full(builder, DType::I64, {3}, 0), x[0]});
  };
  expect_values(gradient_of({row({3, 0, 5})}, product), {0, 30, 0});
  expect_values(gradient_of({row({0, 0, 5})}, product), {0, 0, 0});
}

/// Zero, not absent: a parameter behind a step decays.
TEST(Values, StepsHaveAGradientOfZero) {
  for (UnaryKind kind : {UnaryKind::Sign, UnaryKind::Floor, UnaryKind::Ceil, UnaryKind::Round})
    expect_values(gradient_of({row({1.5, -2.5})}, [kind](Builder&, std::span<const Value> x) { return unary(kind, x[0]); }), {0, 0});
}

TEST(Values, BinaryCorners) {
  expect_values(binary_value(BinaryKind::Maximum, row({1, nan, 2, -inf}), row({2, 1, nan, inf})), {2, nan, nan, inf});
  expect_values(binary_value(BinaryKind::Minimum, row({1, nan, 2, -inf}), row({2, 1, nan, inf})), {1, nan, nan, -inf});
  expect_values(binary_value(BinaryKind::Remainder, row({5, -5, 5, -5, 1, 0}), row({3, 3, -3, -3, 0, 2})), {2, 1, -1, -2, nan, 0});
  expect_values(binary_value(BinaryKind::FloorDivide, row({5, -5, 5, -5, 1, 0}), row({3, 3, -3, -3, 0, 2})), {1, -2, -2, 1, inf, 0});
  expect_values(binary_value(BinaryKind::Divide, row({1, -1, 0}), row({0, 0, 0})), {inf, -inf, nan});
  expect_values(binary_value(BinaryKind::Power, row({0, 0, -2, 2, nan}), row({0, -1, 3, -1, 0})), {1, inf, -8, 0.5, 1});
}

TEST(Values, IntegersWrapAndRoundDown) {
  expect_values(binary_value(BinaryKind::Add, integers(DType::I8, {127, -128}), integers(DType::I8, {1, -1})), {-128, 127});
  expect_values(binary_value(BinaryKind::Multiply, integers(DType::U8, {200, 255}), integers(DType::U8, {2, 255})), {144, 1});
  expect_values(unary_value(UnaryKind::Negate, integers(DType::I32, {INT32_MIN, 5})), {INT32_MIN, -5});
  expect_values(binary_value(BinaryKind::FloorDivide, integers(DType::I64, {7, -7, 7, -7}), integers(DType::I64, {2, 2, -2, -2})), {3, -4, -4, 3});
  expect_values(binary_value(BinaryKind::Remainder, integers(DType::I64, {7, -7, 7, -7}), integers(DType::I64, {2, 2, -2, -2})), {1, 1, -1, -1});
  expect_values(binary_value(BinaryKind::Power, integers(DType::I64, {2, -1, 3, 0}), integers(DType::I64, {10, -3, -1, 0})), {1024, -1, 0, 1});
  expect_values(binary_value(BinaryKind::Xor, integers(DType::I32, {6, 1}), integers(DType::I32, {3, 1})), {5, 0});
  const Literal low = integers(DType::I64, {INT64_MIN}), minus_one = integers(DType::I64, {-1});
  EXPECT_EQ(binary_value(BinaryKind::FloorDivide, low, minus_one).integer_at(0), INT64_MIN);
  EXPECT_EQ(binary_value(BinaryKind::Remainder, low, minus_one).integer_at(0), 0);
}

TEST(Values, IntegerDivisionByZeroIsTheUsersError) {
  const Literal one = integers(DType::I32, {1}), zero = integers(DType::I32, {0});
  EXPECT_THROW(binary_value(BinaryKind::FloorDivide, one, zero), UserError);
  EXPECT_THROW(binary_value(BinaryKind::Remainder, one, zero), UserError);
}

TEST(Values, ReductionsOfNothingAndOfNan) {
  const auto reduced = [](ReduceKind kind, const Literal& x) { return run_sample(Reduce{kind, {0}}, std::vector<Literal>{x}).at(0); };
  const Literal nothing(DType::F32, {0, 2}), none(DType::I8, {0, 2}), no_truth(DType::Bool, {0, 2});
  expect_values(reduced(ReduceKind::Sum, nothing), {0, 0});
  expect_values(reduced(ReduceKind::Product, nothing), {1, 1});
  expect_values(reduced(ReduceKind::Max, nothing), {-inf, -inf});
  expect_values(reduced(ReduceKind::Min, nothing), {inf, inf});
  expect_values(reduced(ReduceKind::Max, none), {-128, -128});
  expect_values(reduced(ReduceKind::Min, none), {127, 127});
  expect_values(reduced(ReduceKind::Any, no_truth), {0, 0});
  expect_values(reduced(ReduceKind::All, no_truth), {1, 1});
  expect_values(reduced(ReduceKind::Max, row({1, nan, 3})), {nan});
  expect_values(reduced(ReduceKind::Min, row({nan, 1, 3})), {nan});
  expect_values(run_sample(ArgReduce{ArgReduceKind::ArgMax, 0}, std::vector<Literal>{row({1, 3, 3, 2})}).at(0), {1});
  expect_values(run_sample(ArgReduce{ArgReduceKind::ArgMin, 0}, std::vector<Literal>{row({1, nan, -3, nan})}).at(0), {1});
  expect_values(run_sample(ArgSort{0, false}, std::vector<Literal>{row({2, nan, -1, 2})}).at(0), {2, 0, 3, 1});
  expect_values(run_sample(ArgSort{0, true}, std::vector<Literal>{row({2, nan, -1, 2})}).at(0), {1, 0, 3, 2});
  const auto picked = [&](PickKind kind, int64_t count, const Literal& x) { return run_sample(Pick{kind, 0, count}, std::vector<Literal>{x}).at(0); };
  expect_values(picked(PickKind::Largest, 3, row({2, nan, -1, 2})), {1, 3, 0});  // which of the equals: PyTorch's choice
  expect_values(picked(PickKind::Smallest, 2, row({2, nan, -1, 3})), {2, 0});
  expect_values(picked(PickKind::Ranked, 4, row({2, nan, -1, 3})), {1});
  const std::vector<int64_t> places{3, 0, 3};
  expect_values(run_sample(ScatterPosition{0, Dim(4)}, std::vector<Literal>{Literal::from_integers(DType::I64, {3}, places)}).at(0), {1, -1, -1, 2});
}

TEST(Values, SumsOfSixteenBitsAreWide) {
  // In bf16 the sum of 1000 ones by steps of one rounding would stop at 256.
  EXPECT_EQ(run_sample(Reduce{ReduceKind::Sum, {0}}, std::vector<Literal>{Literal::full(DType::BF16, {1000}, 1)}).at(0).at(0), 1000);
  const Literal large = Literal::full(DType::F16, {100}, 60000);
  const Literal mean_value = run_one({large}, [](Builder&, std::span<const Value> x) { return mean(x[0]); });
  EXPECT_EQ(mean_value.dtype(), DType::F16);
  EXPECT_EQ(mean_value.at(0), large.at(0));
}

TEST(Values, LogCumulativeSumExpIsStable) {
  const auto scanned = [](const Literal& x) { return run_sample(Cumulative{CumulativeKind::LogSumExp, 0, false}, std::vector<Literal>{x}).at(0); };
  expect_values(scanned(row({1000, 1000, -1000})), {1000, 1000 + std::log(2), 1000 + std::log(2)});
  expect_values(scanned(row({-inf, -inf, 2, inf, 1})), {-inf, -inf, 2, inf, inf});
  const Literal gradient = gradient_of({row({-inf, -inf, 2, 800, 801})}, [](Builder&, std::span<const Value> x) { return logcumsumexp(x[0], 0); });
  const double share = 1 / (1 + std::exp(1.0));
  const std::vector<double> wanted = {0, 0, 1, 1 + share, 1 - share};
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(gradient.at(static_cast<int64_t>(i)), wanted[i], 1e-12) << i;
}

TEST(GradientCorners, ProductsWithZeros) {
  const auto scan = [](Builder&, std::span<const Value> x) { return cumprod(x[0], 0); };
  expect_values(gradient_of({row({3, 0, 5, 2})}, scan), {1, 48, 0, 0});
  const Literal x = Literal::from_doubles(DType::F64, {3, 3}, std::vector<double>{3, 0, 5, 0, 0, 7, 2, 4, 1});
  expect_values(gradient_of({x}, [](Builder&, std::span<const Value> in) { return prod(in[0], {1}); }), {0, 15, 0, 0, 0, 0, 4, 2, 8});
}

TEST(GradientCorners, TiesShareAndBoundsPass) {
  expect_values(gradient_of({row({1, 3, 3, 2})}, [](Builder&, std::span<const Value> x) { return amax(x[0]); }), {0, 0.5, 0.5, 0});
  expect_values(gradient_of({row({1, 2, 3}), row({2, 2, 2})}, [](Builder&, std::span<const Value> x) { return maximum(x[0], x[1]); }), {0, 0.5, 1});
  expect_values(gradient_of({row({1, 2, 3}), row({2, 2, 2})}, [](Builder&, std::span<const Value> x) { return minimum(x[0], x[1]); }), {1, 0.5, 0});
  expect_values(gradient_of({row({-2, -1, 0, 1, 2, nan})}, [](Builder&, std::span<const Value> x) { return clamp(x[0], -1.0, 1.0); }), {0, 1, 1, 1, 0, 0});
  expect_values(gradient_of({row({-1, 0, 1})}, [](Builder&, std::span<const Value> x) { return relu(x[0]); }), {0, 0, 1});
  expect_values(gradient_of({row({-1, 0, 1})}, [](Builder&, std::span<const Value> x) { return abs(x[0]); }), {-1, 0, 1});
}

TEST(GradientCorners, PowersAtZeroAreFinite) {
  for (double exponent : {0.0, 1.0, 2.0, 3.0}) {
    const double wanted = exponent == 1 ? 1 : 0;
    expect_values(gradient_of({row({0})}, [=](Builder&, std::span<const Value> x) { return pow(x[0], exponent); }), {wanted});
    // The exponent as a tensor takes the general rule.
    expect_values(gradient_of({row({0}), row({exponent})}, [](Builder&, std::span<const Value> x) { return pow(x[0], x[1]); }), {wanted});
  }
  expect_values(gradient_of({row({2, 0, 0.5}), row({0, 0, 4})}, [](Builder&, std::span<const Value> x) { return pow(x[1], x[0]); }), {0, 0, 2 * std::log(4)});
  expect_values(gradient_of({row({-2})}, [](Builder&, std::span<const Value> x) { return pow(x[0], 3.0); }), {12});
  expect_values(gradient_of({row({0, 4})}, [](Builder&, std::span<const Value> x) { return sqrt(x[0]); }), {inf, 0.25});
}

TEST(GradientCorners, AnArmThatIsNotTakenAddsNothing) {
  // The rule of select cuts the gradient of the other arm to 0; its own gradient must be finite there, hence the inner select.
  const auto safe = [](Builder&, std::span<const Value> x) {
    const Value positive = greater(x[0], 0.0);
    return where(positive, log(where(positive, x[0], ones_like(x[0]))), zeros_like(x[0]));
  };
  expect_values(gradient_of({row({0, 2, -1})}, safe), {0, 0.5, 0});
}

TEST(RandomNumbers, AreAFunctionOfKeyAndPlace) {
  const auto drawn = [](int64_t key, Shape shape, Shape starts) {
    const Random op{RandomKind::Uniform, DType::F32, std::move(shape), {{4, 6}, std::move(starts)}};
    return run_sample(op, std::vector<Literal>{Literal::integer(DType::I64, key)}).at(0);
  };
  const Literal whole = drawn(1, {4, 6}, {0, 0});
  EXPECT_TRUE(whole == drawn(1, {4, 6}, {0, 0}));
  EXPECT_FALSE(whole == drawn(2, {4, 6}, {0, 0}));
  EXPECT_FALSE(whole == drawn(int64_t{1} << 40 | 1, {4, 6}, {0, 0})) << "a key has 64 bits";
  const Literal part = drawn(1, {2, 3}, {1, 2});
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(part.at(i * 3 + j), whole.at((i + 1) * 6 + j + 2));
  }
}

TEST(RandomNumbers, HaveTheMomentsOfTheirDistribution) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const Shape shape{20000};
    const std::vector<Literal> inputs = {Literal::integer(DType::I64, 1)};
    for (RandomKind kind : {RandomKind::Uniform, RandomKind::Normal}) {
      const Literal values = run_sample(Random{kind, dtype, shape, DrawPlace::whole(shape)}, inputs).at(0);
      double sum = 0, squares = 0;
      for (double value : values.to_doubles()) {
        sum += value, squares += value * value;
        if (kind == RandomKind::Uniform) { ASSERT_TRUE(value >= 0 && value < 1) << value; }
      }
      const double mean = sum / 20000, variance = squares / 20000 - mean * mean;
      EXPECT_NEAR(mean, kind == RandomKind::Uniform ? 0.5 : 0, 0.02);
      EXPECT_NEAR(variance, kind == RandomKind::Uniform ? 1.0 / 12 : 1, 0.03);
    }
  }
}

}  // namespace values_test
}  // namespace stepgraph::testing
