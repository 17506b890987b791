// SPDX-License-Identifier: Apache-2.0
// Numbers of PyTorch's operators where formulas that are right elsewhere go wrong: 16-bit operands, ties, bounds, zeros of both signs, NaN, infinity. What is wanted
// is what PyTorch 2.11 gives on a CPU, or (f16 norms and the like) the exact number rounded.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "tests/reference/module_runner.h"
#include "tests/reference/row_runner.h"

namespace stepgraph::testing {
namespace pt2_numbers_test {

using Numbers = std::vector<double>;
constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

Literal f16(Sizes sizes, const Numbers& values) { return Literal::from_doubles(DType::F16, std::move(sizes), values); }
Literal bf16(Sizes sizes, const Numbers& values) { return Literal::from_doubles(DType::BF16, std::move(sizes), values); }
Literal u8(Sizes sizes, const std::vector<int64_t>& values) { return Literal::from_integers(DType::U8, std::move(sizes), values); }
Literal i8(Sizes sizes, const std::vector<int64_t>& values) { return Literal::from_integers(DType::I8, std::move(sizes), values); }

/// To within one step of the dtype.
void expect_near(const Literal& found, const Numbers& wanted, const char* what = "") {
  ASSERT_EQ(found.count(), static_cast<int64_t>(wanted.size())) << what;
  const double step = found.dtype() == DType::F16 ? 0x1p-10 : found.dtype() == DType::BF16 ? 0x1p-7 : found.dtype() == DType::F32 ? 0x1p-20 : 0x1p-44;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double value = found.at(static_cast<int64_t>(i));
    if (std::isnan(wanted[i])) EXPECT_TRUE(std::isnan(value)) << what << " " << i;
    else if (std::isinf(wanted[i])) EXPECT_EQ(value, wanted[i]) << what << " " << i;
    else EXPECT_NEAR(value, wanted[i], std::fabs(wanted[i]) * step + (wanted[i] == 0 ? 1e-30 : 0)) << what << " " << i;
  }
}
Numbers numbers(const Literal& literal) { return literal.to_doubles(); }

// ---- 16-bit operands: f32 inside, rounded once

TEST(HalfNumbers, NormsWhoseSquaresDoNotFit) {
  const Literal x = f16({2, 2}, {300, 400, 1e-4, 0});
  const RowArguments rows{{"p", 2.0}, {"dim", std::vector<int64_t>{1}}};
  const RowGradients found = differentiate_row("norm.ScalarOpt_dim", {{"self", x}}, rows);
  EXPECT_EQ(found.value.dtype(), DType::F16);
  expect_near(found.value, {500, x.at(2)});
  expect_near(found.gradients.at("self"), {.6, .8, 1, 0});
  for (const char* name : {"linalg_vector_norm.default", "linalg_norm.default", "frobenius_norm.dim"})
    expect_near(run_row(name, {{"self", x}}, {{"dim", std::vector<int64_t>{1}}}).at(0), {500, x.at(2)}, name);
  expect_near(run_row("norm.ScalarOpt_dim", {{"self", x}}, {{"p", 3.0}, {"dim", std::vector<int64_t>{1}}}).at(0), {std::cbrt(91e6), x.at(2)});
  expect_near(run_row("dist.default", {{"self", f16({2}, {300, 400})}, {"other", f16({2}, {0, 0})}}).at(0), {500});
  expect_near(run_row("cdist.default", {{"x1", f16({1, 2}, {300, 400})}, {"x2", f16({1, 2}, {0, 0})}}).at(0), {500});
  expect_near(run_row("renorm.default", {{"self", x}}, {{"p", 2.0}, {"dim", int64_t{0}}, {"maxnorm", 5.0}}).at(0), {3, 4, x.at(2), 0});
  expect_near(run_row("_weight_norm.default", {{"v", f16({1, 2}, {300, 400})}, {"g", f16({1, 1}, {5})}}, {{"dim", int64_t{0}}}).at(0), {3, 4});
}

/// The functions of C++ models are the same ones.
TEST(HalfNumbers, NormalizedVectorsAndTheirGradients) {
  for (DType dtype : {DType::F16, DType::BF16}) {
    const auto found = differentiate({Literal::from_doubles(dtype, {1, 2}, Numbers{300, 400})}, [](Builder&, const auto& in) {
      return sum(in[0] / maximum(vector_norm(in[0], 2, {1}, true), full(*in[0].builder, in[0].dtype(), {Dim(1), Dim(1)}, 1e-6)));
    });
    const double step = dtype == DType::F16 ? 0x1p-10 : 0x1p-7;
    EXPECT_NEAR(found.value.at(0), 1.4, 2 * step);
    // the two parts of each gradient, 1/500 and less, are halves that cancel
    EXPECT_NEAR(found.gradients[0]->at(0), (1 - 1.4 * .6) / 500, 4 * step / 500);
    EXPECT_NEAR(found.gradients[0]->at(1), (1 - 1.4 * .8) / 500, 4 * step / 500);
  }
}

TEST(HalfNumbers, DeviationsAndVariances) {
  expect_near(run_row("std.correction", {{"self", f16({2}, {-300, 300})}}).at(0), {std::sqrt(180000.0)});
  const Literal small = f16({2}, {1e-4, 2e-4});
  expect_near(run_row("std.correction", {{"self", small}}).at(0), {(small.at(1) - small.at(0)) / std::sqrt(2.0)});
  const std::vector<Literal> both = run_row("std_mean.correction", {{"self", f16({3}, {60000, 60000, 60032})}}, {}, true, 2);
  expect_near(both[0], {32 / std::sqrt(3.0)});
  expect_near(both[1], {60010.7});
  const RowGradients found = differentiate_row("std.correction", {{"self", f16({2}, {-300, 300})}});
  expect_near(found.gradients.at("self"), {-std::sqrt(.5), std::sqrt(.5)});
  expect_near(run_row("var.correction", {{"self", bf16({3}, {1, 1.0078125, 1.015625})}}).at(0), {0x1p-14});
}

TEST(HalfNumbers, SimilaritiesAndLosses) {
  const Literal a = f16({1, 2}, {300, 400}), b = f16({1, 2}, {400, 300}), small = f16({1, 2}, {3e-4, 4e-4}), swapped = f16({1, 2}, {4e-4, 3e-4});
  expect_near(run_row("cosine_similarity.default", {{"x1", a}, {"x2", b}}).at(0), {.96});
  expect_near(run_row("cosine_similarity.default", {{"x1", small}, {"x2", swapped}}).at(0), {.96});
  expect_near(run_row("pairwise_distance.default", {{"x1", a}, {"x2", f16({1, 2}, {0, 0})}}).at(0), {500});
  expect_near(run_row("cosine_embedding_loss.default", {{"input1", a}, {"input2", b}, {"target", f16({1}, {1})}}).at(0), {.04});
  expect_near(run_row("logsumexp.default", {{"self", f16({2}, {11, 11})}}, {{"dim", std::vector<int64_t>{0}}}).at(0), {11 + std::log(2.0)});
  expect_near(run_row("nanmean.default", {{"self", Literal::full(DType::F16, {3000}, 40)}}).at(0), {40});
  expect_near(differentiate_row("prod.default", {{"self", f16({3}, {300, 300, 0})}}).gradients.at("self"), {0, 0, infinity});
  expect_near(differentiate_row("prod.default", {{"self", f16({4}, {300, 300, 1e-3, 0})}}).gradients.at("self"), {0, 0, 0, 90000 * f16({1}, {1e-3}).at(0)});
}

TEST(HalfNumbers, RmsNormHasTheEpsilonOfF32) {
  const double eps = 0x1p-23;
  for (DType dtype : {DType::BF16, DType::F16}) {
    const Literal x = Literal::from_doubles(dtype, {1, 2}, Numbers{.01, .02});
    const double scale = 1 / std::sqrt((x.at(0) * x.at(0) + x.at(1) * x.at(1)) / 2 + eps);
    expect_near(run_row("rms_norm.default", {{"input", x}}, {{"normalized_shape", std::vector<int64_t>{2}}}).at(0), {x.at(0) * scale, x.at(1) * scale});
  }
  expect_near(run_row("rms_norm.default", {{"input", f64({1, 1}, {1e-7})}}, {{"normalized_shape", std::vector<int64_t>{1}}}).at(0), {1e-7 / std::sqrt(1e-14 + 0x1p-52)});
}

TEST(HalfNumbers, ProductsAndBiasAreRoundedOnce) {
  const Literal x = bf16({1, 2}, {1, 0x1p-7}), w = bf16({1, 2}, {1, .5}), bias = bf16({1}, {-1});
  EXPECT_EQ(numbers(run_row("linear.default", {{"input", x}, {"weight", w}, {"bias", bias}}).at(0)), (Numbers{0x1p-8}));
  EXPECT_EQ(run_row("linear.default", {{"input", x}, {"weight", w}, {"bias", bias}}).at(0).dtype(), DType::BF16);
  const Literal column = bf16({2, 1}, {1, .5});
  EXPECT_EQ(numbers(run_row("addmm.default", {{"self", bias}, {"mat1", x}, {"mat2", column}}).at(0)), (Numbers{0x1p-8}));
  EXPECT_EQ(numbers(run_row("addmv.default", {{"self", bias}, {"mat", x}, {"vec", bf16({2}, {1, .5})}}).at(0)), (Numbers{0x1p-8}));
  const Literal batch = bf16({1, 1, 2}, {1, 0x1p-7}), columns = bf16({1, 2, 1}, {1, .5});
  EXPECT_EQ(numbers(run_row("baddbmm.default", {{"self", bf16({1, 1, 1}, {-1})}, {"batch1", batch}, {"batch2", columns}}).at(0)), (Numbers{0x1p-8}));
  EXPECT_EQ(numbers(run_row("addbmm.default", {{"self", bf16({1, 1}, {-1})}, {"batch1", batch}, {"batch2", columns}}).at(0)), (Numbers{0x1p-8}));
  const RowTensors conv{{"input", batch}, {"weight", bf16({1, 1, 2}, {1, .5})}, {"bias", bias}};
  EXPECT_EQ(numbers(run_row("conv1d.default", conv).at(0)), (Numbers{0x1p-8}));
  const RowTensors transposed{{"input", bf16({1, 2, 1}, {1, 0x1p-7})}, {"weight", bf16({2, 1, 1}, {1, .5})}, {"bias", bias}};
  EXPECT_EQ(numbers(run_row("conv_transpose1d.default", transposed).at(0)), (Numbers{0x1p-8}));
}

/// Numbers beside 16-bit tensors are not rounded to 16 bits first.
TEST(HalfNumbers, StepsOfOneOperatorAreNotRounded) {
  const Literal x = f16({2}, {6e4, -6e4});
  expect_near(run_row("mish.default", {{"self", x}}).at(0), {x.at(0), 0});
  expect_near(differentiate_row("mish.default", {{"self", f16({3}, {3e4, 6e4, -3e4})}}).gradients.at("self"), {1, 1, 0});
  expect_near(run_row("hypot.default", {{"self", f16({1}, {3e4})}, {"other", f16({1}, {4e4})}}).at(0), {5e4});
  expect_near(run_row("round.decimals", {{"self", f16({1}, {1234})}}, {{"decimals", int64_t{2}}}).at(0), {1234});
  expect_near(run_row("add.Tensor", {{"self", f16({1}, {-6e4})}, {"other", f16({1}, {6e4})}}, {{"alpha", 2.0}}).at(0), {6e4});
  expect_near(run_row("addcmul.default", {{"self", f16({1}, {-6e4})}, {"tensor1", f16({1}, {300})}, {"tensor2", f16({1}, {300})}}).at(0), {3e4});
}

// ---- factors of zero, and what is not read

TEST(Bounds, BetaOfZeroReadsNothing) {
  const Literal unread = f32({2}, {nan, 1}), matrix = f32({2, 2}, {1, 2, 3, 4});
  const RowArguments none{{"beta", int64_t{0}}};
  const RowGradients found = differentiate_row("addmv.default", {{"self", unread}, {"mat", matrix}, {"vec", f32({2}, {.5, -1})}}, none);
  EXPECT_EQ(numbers(found.value), (Numbers{-1.5, -2.5}));
  EXPECT_EQ(numbers(found.gradients.at("self")), (Numbers{0, 0}));
  EXPECT_EQ(numbers(run_row("addr.default", {{"self", unread}, {"vec1", f32({2}, {1, 2})}, {"vec2", f32({2}, {3, 4})}}, none).at(0)), (Numbers{3, 4, 6, 8}));
  EXPECT_EQ(numbers(run_row("addmm.default", {{"self", unread}, {"mat1", matrix}, {"mat2", matrix}}, none).at(0)), (Numbers{7, 10, 15, 22}));
  const Literal batch = f32({1, 2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(numbers(run_row("addbmm.default", {{"self", f32({2, 2}, {nan, 1, 1, nan})}, {"batch1", batch}, {"batch2", batch}}, none).at(0)), (Numbers{7, 10, 15, 22}));
}

TEST(Bounds, ShiftsByTheWidthAndMore) {
  const Literal x = i32({4}, {-2147483648LL, 2147483647, 5, -7});
  const auto shifted = [](const char* target, const Literal& a, int64_t by) { return numbers(run_row(target, {{"self", a}}, {{"other", by}}).at(0)); };
  EXPECT_EQ(shifted("__rshift__.Scalar", x, 31), (Numbers{-1, 0, 0, -1}));
  EXPECT_EQ(shifted("__rshift__.Scalar", x, 40), (Numbers{-1, 0, 0, -1}));
  EXPECT_EQ(shifted("__rshift__.Scalar", x, 1), (Numbers{-1073741824, 1073741823, 2, -4}));
  EXPECT_EQ(shifted("__lshift__.Scalar", x, 31), (Numbers{0, -2147483648.0, -2147483648.0, -2147483648.0}));
  EXPECT_EQ(shifted("__lshift__.Scalar", x, 32), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(shifted("__rshift__.Scalar", i64({2}, {INT64_MIN, INT64_MAX}), 63), (Numbers{-1, 0}));
  EXPECT_EQ(shifted("__rshift__.Scalar", i64({2}, {INT64_MIN, INT64_MAX}), 62), (Numbers{-2, 1}));
  EXPECT_EQ(shifted("__rshift__.Scalar", i8({2}, {-128, 127}), 7), (Numbers{-1, 0}));
  EXPECT_EQ(shifted("__rshift__.Scalar", u8({2}, {255, 128}), 7), (Numbers{1, 1}));
  EXPECT_EQ(shifted("__rshift__.Scalar", u8({2}, {255, 128}), 8), (Numbers{0, 0}));
  const Literal by = i32({4}, {1, 33, -1, 0});
  EXPECT_EQ(numbers(run_row("bitwise_right_shift.Tensor", {{"self", x}, {"other", by}}).at(0)), (Numbers{-1073741824, 0, 0, -7}));
}

// ---- derivatives near zero and far from it

Numbers slope(const std::string& target, const RowTensors& tensors, const RowArguments& arguments = {}, const Numbers& weights = {}, const char* of = "self") {
  return numbers(differentiate_row(target, tensors, arguments, weights).gradients.at(of));
}

TEST(Bounds, SincNearZero) {
  const Numbers found = slope("sinc.default", {{"self", f32({5}, {1e-20, 0, -1e-3, .2, .3})}}, {}, {9, 1, 1, 1, 1});
  EXPECT_NEAR(found[0], -2.9608813e-19, 1e-24);
  EXPECT_EQ(found[1], 0);
  const auto exact = [](double x) {
    const double t = x * M_PI;
    return M_PI * (t * std::cos(t) - std::sin(t)) / (t * t);
  };
  EXPECT_NEAR(found[2], 3.28986488e-3, 1e-8);
  EXPECT_NEAR(found[3], exact(.2), 1e-6);
  EXPECT_NEAR(found[4], exact(.3), 1e-6);
  EXPECT_NEAR(slope("sinc.default", {{"self", f64({1}, {.2499})}})[0], exact(.2499), 1e-13);
}

TEST(Bounds, LogarithmsOfZero) {
  const RowTensors zero{{"self", f32({3}, {0, 0, 2})}, {"other", f32({3}, {0, 3, .5})}};
  expect_near(f32({3}, slope("xlogy.Tensor", zero)), {0, std::log(3.0), std::log(.5)});
  const RowTensors minus_one{{"self", f32({2}, {0, 0})}, {"other", f32({2}, {-1, 2})}};
  expect_near(f32({2}, slope("special_xlog1py.default", minus_one)), {0, std::log(3.0)});
  expect_near(f32({3}, slope("special_entr.default", {{"self", f32({3}, {0, 1, 4})}})), {infinity, -1, -1 - std::log(4.0)});
  EXPECT_EQ(numbers(run_row("special_entr.default", {{"self", f32({3}, {0, 1, -1})}}).at(0)), (Numbers{0, 0, -infinity}));
}

TEST(Bounds, ActivationsFarFromZero) {
  const RowTensors far{{"self", f32({4}, {1e38, -1e38, 3e38, -3e38})}};
  for (const char* name : {"silu.default", "mish.default", "hardswish.default", "gelu.default"}) {
    const RowGradients found = differentiate_row(name, far, {}, {4, 4, 4, 4});
    EXPECT_EQ(numbers(found.gradients.at("self")), (Numbers{4, 0, 4, 0})) << name;
    expect_near(found.value, {1e38, 0, 3e38, 0}, name);
  }
  EXPECT_EQ(slope("hardswish.default", {{"self", f32({2}, {infinity, -infinity})}}), (Numbers{1, 0}));
}

TEST(Bounds, RootsOfZeroAreSigned) {
  const auto power = [](double x, double exponent) { return run_row("pow.Tensor_Scalar", {{"self", f32({1}, {x})}}, {{"exponent", exponent}}).at(0).at(0); };
  EXPECT_EQ(power(-0.0, -.5), -infinity);
  EXPECT_EQ(power(0.0, -.5), infinity);
  EXPECT_TRUE(std::signbit(power(-0.0, .5)));
  EXPECT_TRUE(std::isnan(power(-infinity, .5)));
  EXPECT_EQ(power(4, -.5), .5);
}

TEST(Bounds, GammaFunctionsJustBelowZero) {
  EXPECT_NEAR(run_row("digamma.default", {{"self", f32({1}, {-1e-20})}}).at(0).at(0), 1e20, 1e14);
  EXPECT_NEAR(run_row("digamma.default", {{"self", f64({1}, {-1.25})}}).at(0).at(0), 3.714139120214, 1e-10);
  EXPECT_NEAR(run_row("polygamma.default", {{"self", f32({1}, {-1e-12})}}, {{"n", int64_t{1}}}).at(0).at(0), 1e24, 1e18);
  EXPECT_NEAR(run_row("polygamma.default", {{"self", f64({1}, {-.5})}}, {{"n", int64_t{1}}}).at(0).at(0), M_PI * M_PI / 2 + 4, 1e-12);
  EXPECT_TRUE(std::isnan(run_row("digamma.default", {{"self", f32({1}, {-2})}}).at(0).at(0)));
}

TEST(Bounds, DeviationsWhoseSquaresDoNotFitF32) {
  expect_near(run_row("std.correction", {{"self", f32({3}, {1e20, 0, 1})}}).at(0), {1e20 / std::sqrt(3.0)});
  expect_near(f32({3}, slope("std.correction", {{"self", f32({3}, {1e20, 0, 0})}})), {1 / std::sqrt(3.0), -.5 / std::sqrt(3.0), -.5 / std::sqrt(3.0)});
  expect_near(run_row("std_mean.correction", {{"self", f32({2}, {3e38, -3e38})}}, {{"correction", int64_t{0}}}, true, 2).at(0), {3e38});
}

TEST(Bounds, NoDegreeOfFreedom) {
  for (const char* name : {"var.correction", "std.correction"}) {
    EXPECT_EQ(run_row(name, {{"self", f32({2}, {1, 2})}}, {{"correction", int64_t{3}}}).at(0).at(0), infinity) << name;
    EXPECT_TRUE(std::isnan(run_row(name, {{"self", f32({1}, {1})}}).at(0).at(0))) << name;
  }
}

// ---- which of equals has the gradient

TEST(Bounds, LargestDistancesShareNothing) {
  const Literal a = f32({1, 3}, {4, 1, -3}), b = f32({1, 3}, {1, 0, 0});
  EXPECT_EQ(slope("cdist.default", {{"x1", a}, {"x2", b}}, {{"p", infinity}}, {}, "x1"), (Numbers{1, 0, -1}));
  EXPECT_EQ(slope("cdist.default", {{"x1", a}, {"x2", b}}, {{"p", infinity}}, {}, "x2"), (Numbers{-1, 0, 1}));
  EXPECT_EQ(slope("pdist.default", {{"self", f32({2, 2}, {1, 2, 3, 4})}}, {{"p", infinity}}), (Numbers{-1, -1, 1, 1}));
  EXPECT_EQ(slope("norm.ScalarOpt_dim", {{"self", f32({1, 2}, {3, -3})}}, {{"p", infinity}, {"dim", std::vector<int64_t>{1}}}), (Numbers{.5, -.5}));
}

TEST(Bounds, ClampsBetweenEqualCrossedAndMissingBounds) {
  const Literal x = f32({3}, {1, 2, 3}), two = f32({3}, {2, 2, 2});
  const RowGradients equal = differentiate_row("clamp.Tensor", {{"self", x}, {"min", two}, {"max", two}});
  EXPECT_EQ(numbers(equal.value), (Numbers{2, 2, 2}));
  EXPECT_EQ(numbers(equal.gradients.at("self")), (Numbers{0, 1, 0}));
  EXPECT_EQ(numbers(equal.gradients.at("min")), (Numbers{0, 0, 0}));
  EXPECT_EQ(numbers(equal.gradients.at("max")), (Numbers{0, 0, 1}));
  const RowGradients crossed = differentiate_row("clamp.Tensor", {{"self", x}, {"min", f32({3}, {3, 3, 3})}, {"max", two}});
  EXPECT_EQ(numbers(crossed.value), (Numbers{2, 2, 2}));
  EXPECT_EQ(numbers(crossed.gradients.at("self")), (Numbers{0, 0, 0}));
  EXPECT_EQ(numbers(crossed.gradients.at("max")), (Numbers{1, 1, 1}));
  const Literal unknown = f32({3}, {nan, 2, 5});
  for (const RowArguments& bounds : {RowArguments{{"min", 0.0}, {"max", 4.0}}, RowArguments{{"max", 4.0}}}) {
    const RowGradients found = differentiate_row("clamp.default", {{"self", unknown}}, bounds);
    EXPECT_TRUE(std::isnan(found.value.at(0)));
    EXPECT_EQ(numbers(found.gradients.at("self")), (Numbers{0, 1, 0}));
  }
  EXPECT_EQ(slope("clamp_min.Tensor", {{"self", unknown}, {"min", two}}), (Numbers{0, 1, 1}));
  EXPECT_EQ(slope("hardtanh.default", {{"self", unknown}}), (Numbers{1, 0, 0}));
  EXPECT_EQ(slope("hardsigmoid.default", {{"self", unknown}}, {}, {6, 6, 6}), (Numbers{0, 1, 0}));
  const auto bounded = differentiate({f32({3}, {nan, 2, 5})}, [](Builder&, const auto& in) { return sum(clamp(in[0], std::nullopt, 4.0)); });
  EXPECT_EQ(numbers(*bounded.gradients[0]), (Numbers{0, 1, 0}));
}

TEST(Bounds, TheSameEqualsAsOnACpu) {
  const Literal ones = f32({5}, {1, 1, 1, 1, 1});
  const RowArguments two{{"k", int64_t{2}}};
  EXPECT_EQ(slope("topk.default", {{"self", ones}}, two, {1, 10}), (Numbers{0, 0, 1, 0, 10}));
  EXPECT_EQ(numbers(run_row("topk.default", {{"self", ones}}, {{"k", int64_t{2}}, {"largest", false}}, true, 2).at(1)), (Numbers{2, 4}));
  const Literal mixed = f32({7}, {2, 1, 2, 1, 2, 3, 2});
  Numbers places;
  for (int64_t k = 1; k <= 7; ++k) places.push_back(run_row("kthvalue.default", {{"self", mixed}}, {{"k", k}}, true, 2).at(1).at(0));
  EXPECT_EQ(places, (Numbers{3, 1, 4, 0, 6, 2, 5}));
  EXPECT_EQ(numbers(run_row("topk.default", {{"self", f32({4}, {1, nan, 3, 2})}}, two, true, 2).at(1)), (Numbers{1, 2}));
  EXPECT_EQ(numbers(run_row("topk.default", {{"self", i64({4}, {1, 9, 3, 2})}}, {{"k", int64_t{3}}}, true, 2).at(0)), (Numbers{9, 3, 2}));
}

/// A parameter that is reached through a step has a gradient, so that it decays.
TEST(Bounds, GradientsOfZeroAreGradients) {
  const RowTensors signs{{"self", f32({2}, {0, -3})}, {"other", f32({2}, {-1, 2})}};
  EXPECT_EQ(slope("copysign.Tensor", signs), (Numbers{0, -1}));
  EXPECT_EQ(slope("copysign.Tensor", signs, {}, {}, "other"), (Numbers{0, 0}));
  EXPECT_EQ(slope("addmm.default", {{"self", f32({1, 1}, {5})}, {"mat1", f32({1, 1}, {2})}, {"mat2", f32({1, 1}, {3})}}, {{"beta", int64_t{0}}}), (Numbers{0}));
}

// ---- gradients of gradients

/// d(sum of a backward operator's first result)/d(each operand) against central differences.
void expect_derivatives(const std::string& target, const RowTensors& tensors, const RowArguments& arguments = {}) {
  const RowGradients found = differentiate_row(target, tensors, arguments);
  for (const auto& [name, values] : tensors) {
    if (!is_floating(values.dtype())) continue;
    const auto gradient = found.gradients.find(name);  // absent where a result does not change with the operand
    for (int64_t i = 0; i < values.count(); ++i) {
      const auto total = [&](double shift) {
        RowTensors moved = tensors;
        moved.at(name).set(i, values.at(i) + shift);
        const Numbers all = numbers(run_row(target, moved, arguments).at(0));
        double sum = 0;
        for (double value : all) sum += value;
        return sum;
      };
      EXPECT_NEAR(gradient == found.gradients.end() ? 0 : gradient->second.at(i), (total(1e-5) - total(-1e-5)) / 2e-5, 1e-7) << target << " " << name << " " << i;
    }
  }
}

TEST(SecondDerivatives, OfBackwardOperators) {
  const Literal x = f64({2, 2}, {.3, -1.2, 2, .7}), t = f64({2, 2}, {.5, .8, -1, .1}), g = f64({2, 2}, {1.5, -.5, 2, 1}), one = f64({}, {1.3});
  for (int64_t reduction : {0, 1, 2}) {
    const Literal& seed = reduction == 0 ? g : one;
    const RowTensors loss{{"self", x}, {"target", t}, {"grad_output", seed}};
    expect_derivatives("mse_loss_backward.default", loss, {{"reduction", reduction}});
    expect_derivatives("smooth_l1_loss_backward.default", loss, {{"reduction", reduction}, {"beta", .75}});
    expect_derivatives("huber_loss_backward.default", loss, {{"reduction", reduction}, {"delta", .5}});
    expect_derivatives("soft_margin_loss_backward.default", loss, {{"reduction", reduction}});
    expect_derivatives("binary_cross_entropy_backward.default", {{"self", f64({2}, {.3, .8})}, {"target", f64({2}, {.1, 1})}, {"grad_output", reduction == 0 ? f64({2}, {1, 2}) : one}},
                       {{"reduction", reduction}});
  }
  expect_derivatives("_prelu_kernel_backward.default", {{"self", x}, {"weight", t}, {"grad_output", g}});
  const Literal q = f64({1, 1, 2, 2}, {.3, -1.2, 2, .7}), k = f64({1, 1, 2, 2}, {.5, .8, -1, .1}), v = f64({1, 1, 2, 2}, {1.5, -.5, 2, 1});
  expect_derivatives("_scaled_dot_product_flash_attention_for_cpu_backward.default", {{"query", q}, {"key", k}, {"value", v}, {"grad_out", f64({1, 1, 2, 2}, {1, 2, -1, .5})}});
  expect_derivatives("convolution_backward.default", {{"grad_output", f64({1, 1, 2}, {.4, -1})}, {"input", f64({1, 1, 3}, {1, 2, -1})}, {"weight", f64({1, 1, 2}, {.5, 3})}});
}

/// Where one operand is another one, each partial gradient is of its own.
TEST(SecondDerivatives, OperandsThatAreOneValue) {
  const auto found = differentiate({f64({2}, {1, 2})}, [](Builder& builder, const auto& in) {
    pt2::ExportedNode node;
    node.target = "torch.ops.aten.mse_loss_backward.default";
    node.inputs = {{"grad_output", pt2::TensorRef{"g"}}, {"self", pt2::TensorRef{"x"}}, {"target", pt2::TensorRef{"x"}}, {"reduction", int64_t{2}}};
    const std::map<std::string, pt2::Item> items{{"x", pt2::Tensor(in[0])}, {"g", pt2::Tensor(scalar(builder, DType::F64, 1))}};
    pt2::Surroundings surroundings{builder, true, {}};
    pt2::OperatorCall call(node, surroundings, items);
    pt2::find_row(node.target)(call);
    const Value slope = std::get<pt2::Tensor>(call.outputs().at(0)).value();
    return sum(slope + in[0] * 3.0);
  });
  EXPECT_EQ(found.value.at(0), 9);                          // x - x has the slope 0
  EXPECT_EQ(numbers(*found.gradients[0]), (Numbers{3, 3}));  // 2 of the prediction and -2 of the target
}

}  // namespace pt2_numbers_test
}  // namespace stepgraph::testing
