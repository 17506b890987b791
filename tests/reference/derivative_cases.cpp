// SPDX-License-Identifier: Apache-2.0
// Derivative rules at the places where a formula that is right elsewhere divides by zero, cancels, or counts a use twice.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/reference/module_runner.h"
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph::testing {
namespace derivative_cases_test {

std::vector<double> numbers(const std::optional<Literal>& literal) { return literal ? literal->to_doubles() : std::vector<double>{}; }

// ---- products whose factors are zero: the gradient is the product of all others, never result / factor

using Vector = std::vector<double>;

Vector cumprod_gradient(const Vector& x) {
  Vector gradient(x.size());
  for (size_t k = 0; k < x.size(); ++k)
    for (size_t j = 0; j <= k; ++j) {
      double others = 1;
      for (size_t i = 0; i <= k; ++i) others *= i == j ? 1 : x[i];
      gradient[j] += others;
    }
  return gradient;
}

TEST(ProductGradient, CumprodWithZeros) {
  EXPECT_EQ(cumprod_gradient({3, 0, 5, 2}), (Vector{1, 48, 0, 0}));
  for (const Vector& x : {Vector{3, 0, 5, 2}, Vector{0, 0, 5}, Vector{0}, Vector{}, Vector{1, 2, 0}, Vector{0, 3, 0, 4}, Vector{-1, 2, -3}}) {
    const auto found = differentiate({f32({static_cast<int64_t>(x.size())}, x)}, [](Builder&, const auto& in) { return sum(cumprod(in[0], 0)); });
    EXPECT_EQ(numbers(found.gradients[0]), cumprod_gradient(x)) << x.size();
  }
}

TEST(ProductGradient, RowsWithZeros) {
  const auto found = differentiate({f32({3, 3}, {3, 0, 5, 0, 0, 7, 2, 4, 1})}, [](Builder&, const auto& in) { return sum(prod(in[0], {1})); });
  EXPECT_EQ(numbers(found.gradients[0]), (Vector{0, 15, 0, 0, 0, 0, 4, 2, 8}));
  EXPECT_EQ(found.value.at(0), 8);
}

TEST(ProductGradient, OfAllElementsAndOfAnotherDim) {
  const auto all = differentiate({f32({2, 2}, {0, 2, 3, 4})}, [](Builder&, const auto& in) { return prod(in[0]); });
  EXPECT_EQ(numbers(all.gradients[0]), (Vector{24, 0, 0, 0}));
  const auto first = differentiate({f32({2, 2}, {0, 2, 3, 4})}, [](Builder&, const auto& in) { return sum(prod(in[0], {0})); });
  EXPECT_EQ(numbers(first.gradients[0]), (Vector{3, 4, 0, 2}));
}

// ---- layer norm where the mean is large against the deviation

struct NormRows {
  Vector y, dx;
};
/// Two passes in double, and the backward for the result gradient g.
NormRows plain_layer_norm(const Vector& x, const Vector& g) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0, mean_g = 0, mean_gy = 0;
  for (double v : x) mean += v / n;
  for (double v : x) variance += (v - mean) * (v - mean) / n;
  const double inverse = 1 / std::sqrt(variance + 1e-5);
  NormRows rows;
  for (double v : x) rows.y.push_back((v - mean) * inverse);
  for (size_t i = 0; i < x.size(); ++i) mean_g += g[i] / n, mean_gy += g[i] * rows.y[i] / n;
  for (size_t i = 0; i < x.size(); ++i) rows.dx.push_back(inverse * (g[i] - mean_g - rows.y[i] * mean_gy));
  return rows;
}

TEST(LayerNorm, LargeMeanKeepsItsDigits) {
  const Vector g = some_numbers(32);
  for (double m : {0.0, 64.0, 512.0, 4096.0}) {
    Vector x;
    for (int i = 0; i < 32; ++i) x.push_back(m + i / 256.0);
    const NormRows wanted = plain_layer_norm(x, g);
    EXPECT_NEAR(wanted.y[0], -1.6723, 1e-4);
    const auto result = evaluate({f32({32}, x)}, [](Builder&, const auto& in) -> std::vector<Value> { return {layer_norm(in[0], 1)}; });
    EXPECT_LE(relative_difference(result[0], wanted.y), 5e-2) << m;
    const auto found = differentiate({f32({32}, x), f32({32}, g)}, [](Builder&, const auto& in) { return sum(layer_norm(in[0], 1) * in[1]); });
    EXPECT_LE(relative_difference(*found.gradients[0], wanted.dx), 5e-2) << m;
  }
}

TEST(LayerNorm, ManyRowsAndAffineInF64) {
  const Vector x = some_numbers(2 * 3 * 5), w = some_numbers(5, 2), b = some_numbers(5, 3), g = some_numbers(30, 4);
  const auto found = differentiate({f64({2, 3, 5}, x), f64({5}, w), f64({5}, b), f64({2, 3, 5}, g)},
                                   [](Builder&, const auto& in) { return sum(layer_norm(in[0], 1, in[1], in[2]) * in[3]); });
  Vector dx, dw(5), db(5);
  for (size_t row = 0; row < 6; ++row) {
    Vector xs(x.begin() + static_cast<long>(row * 5), x.begin() + static_cast<long>(row * 5 + 5)), gs(5);
    for (size_t i = 0; i < 5; ++i) gs[i] = g[row * 5 + i] * w[i];
    const NormRows rows = plain_layer_norm(xs, gs);
    dx.insert(dx.end(), rows.dx.begin(), rows.dx.end());
    for (size_t i = 0; i < 5; ++i) dw[i] += g[row * 5 + i] * rows.y[i], db[i] += g[row * 5 + i];
  }
  EXPECT_LE(relative_difference(*found.gradients[0], dx), 1e-12);
  EXPECT_LE(relative_difference(*found.gradients[1], dw), 1e-12);
  EXPECT_LE(relative_difference(*found.gradients[2], db), 1e-12);
}

TEST(LayerNorm, ConstantRowHasNoNan) {
  const auto found = differentiate({f32({4}, {7, 7, 7, 7})}, [](Builder&, const auto& in) { return sum(layer_norm(in[0], 1) * in[0]); });
  for (double d : numbers(found.gradients[0])) EXPECT_TRUE(std::isfinite(d));
}

// ---- one tensor used more than once: each use adds once

TEST(TiedWeights, TwoUsesOfOneMatrix) {
  const auto found = differentiate({f32({1, 2}, {1, 2}), f32({2, 2}, {.5, -1, .25, 2})},
                                   [](Builder&, const auto& in) { return sum(matmul(matmul(in[0], in[1]), in[1])); });
  EXPECT_EQ(numbers(found.gradients[1]), (Vector{.5, 3.25, 2, 7.5}));
}

TEST(TiedWeights, ThroughCallsOfOneLayer) {
  // The layer is one graph that is called twice with the same weight.
  const auto layer = [](const Value& x, const Value& w) { return linear(x, w); };
  const auto found = differentiate({f32({1, 2}, {1, 2}), f32({2, 2}, {.5, .25, -1, 2})},
                                   [&](Builder&, const auto& in) { return sum(layer(layer(in[0], in[1]), in[1])); });
  EXPECT_EQ(numbers(found.gradients[1]), (Vector{.5, 2, 3.25, 7.5}));  // the transposed weight's
}

TEST(TiedWeights, BiasOfTwoLayers) {
  // L = sum((x W + b) W + b): db = W's row sums + 1.
  const auto found = differentiate({f32({1, 2}, {1, 2}), f32({2, 2}, {.5, -1, .25, 2}), f32({2}, {3, -3})}, [](Builder&, const auto& in) {
    return sum(matmul(matmul(in[0], in[1]) + in[2], in[1]) + in[2]);
  });
  EXPECT_EQ(numbers(found.gradients[2]), (Vector{.5, 3.25}));
}

TEST(TiedWeights, ByNameInAModel) {
  const Module step = train_step(
      {{"x", DType::F32, {1, 2}}},
      [](Scope s, Inputs in) -> Loss {
        Value x = in["x"];
        for (int use = 0; use < 2; ++use) x = matmul(x, s.parameter("w", {2, 2}, initialize::zeros()));
        return sum(x);
      },
      Optimizer{}, {.clip_norm = {}, .micro_batches = 1, .gradients_as_outputs = true});
  ModuleRunner runner(step);
  EXPECT_EQ(runner.state.count("w"), 1U);
  runner.state["w"] = f32({2, 2}, {.5, -1, .25, 2});
  EXPECT_EQ(runner.step({{"x", f32({1, 2}, {1, 2})}}).gradients.at("w").to_doubles(), (Vector{.5, 3.25, 2, 7.5}));
}

TEST(TiedWeights, EmbeddingAndHead) {
  // The same weight by an index and by a matrix product: L = (E[t] . E[v]) summed over v.
  const auto found = differentiate({i64({2}, {1, 1}), f32({3, 2}, {1, 2, 3, 4, 5, 6})},
                                   [](Builder&, const auto& in) { return sum(linear(embedding(in[0], in[1]), in[1])); });
  // d/dE[v] = sum of the two x's; d/dE[1] has 2 * column sums more.
  EXPECT_EQ(numbers(found.gradients[1]), (Vector{6, 8, 6 + 18, 8 + 24, 6, 8}));
  EXPECT_FALSE(found.gradients[0]);
}

// ---- functions at their edges

TEST(Softmax, LargeLogitsStayFinite) {
  const auto found = evaluate({f32({3}, {1000, 999, -1000})}, [](Builder&, const auto& in) -> std::vector<Value> {
    return {softmax(in[0], 0), log_softmax(in[0], -1)};
  });
  EXPECT_NEAR(found[0].at(0), 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(found[1].at(2), -2000 - std::log1p(std::exp(-1.0)), 1e-3);
}

TEST(Softmax, RowsWithoutAnythingLeft) {
  const double never = -INFINITY;
  const Literal x = f32({2, 2}, {never, never, 1, never});
  const auto found = differentiate({x, f32({2, 2}, {1, 2, 3, 4})}, [](Builder&, const auto& in) { return sum(safe_softmax(in[0], 1) * in[1]); });
  EXPECT_EQ(found.value.at(0), 3);
  EXPECT_EQ(numbers(found.gradients[0]), (Vector{0, 0, 0, 0}));
}

TEST(Attention, QueryWithoutKeysGivesZeros) {
  const Vector q = some_numbers(8), k = some_numbers(8, 2), v = some_numbers(8, 3);
  const Literal mask = Literal::from_integers(DType::Bool, {2, 2}, std::vector<int64_t>{0, 0, 1, 1});
  const auto found = differentiate({f32({1, 2, 2, 2}, q), f32({1, 2, 2, 2}, k), f32({1, 2, 2, 2}, v), mask}, [](Builder&, const auto& in) {
    AttentionOptions options;
    options.mask = in[3];
    const Value y = scaled_dot_product_attention(in[0], in[1], in[2], options);
    return sum(select(y, 2, 0)) + sum(y * 0.0);
  });
  EXPECT_EQ(found.value.at(0), 0);
  for (int i = 0; i < 3; ++i)
    for (double d : numbers(found.gradients[static_cast<size_t>(i)])) EXPECT_EQ(d, 0);
}

TEST(Attention, MasksAgree) {
  // Causal, the same as a bool mask, and the same as a mask that is added.
  const Vector q = some_numbers(2 * 3 * 2), k = some_numbers(2 * 3 * 2, 2), v = some_numbers(2 * 3 * 4, 3);
  const double never = -INFINITY;
  const auto found = evaluate({f64({2, 1, 3, 2}, q), f64({2, 1, 3, 2}, k), f64({2, 1, 3, 4}, v),
                               Literal::from_integers(DType::Bool, {3, 3}, std::vector<int64_t>{1, 0, 0, 1, 1, 0, 1, 1, 1}),
                               f64({3, 3}, {0, never, never, 0, 0, never, 0, 0, 0})},
                              [](Builder&, const auto& in) -> std::vector<Value> {
                                AttentionOptions causal, by_bool, added;
                                causal.causal = true;
                                by_bool.mask = in[3];
                                added.mask = in[4];
                                return {scaled_dot_product_attention(in[0], in[1], in[2], causal),
                                        scaled_dot_product_attention(in[0], in[1], in[2], by_bool),
                                        scaled_dot_product_attention(in[0], in[1], in[2], added)};
                              });
  EXPECT_EQ(found[0].sizes(), (Sizes{2, 1, 3, 4}));
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(found[0].at(i), v[static_cast<size_t>(i)], 1e-15) << "the first query sees the first key alone";
  EXPECT_LE(relative_difference(found[1], found[0].to_doubles()), 1e-15);
  EXPECT_LE(relative_difference(found[2], found[0].to_doubles()), 1e-15);
}

TEST(Gelu, BothFormsAndTheirGradients) {
  const Vector x{-8, -1, -0.25, 0, 0.5, 1, 3};
  for (GeluKind kind : {GeluKind::Exact, GeluKind::Tanh}) {
    const auto f = [&](double v) {
      return kind == GeluKind::Exact ? 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)))
                                     : 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    };
    const auto found = differentiate({f64({7}, x)}, [&](Builder&, const auto& in) { return sum(gelu(in[0], kind)); });
    double total = 0;
    for (double v : x) total += f(v);
    EXPECT_NEAR(found.value.at(0), total, 1e-12);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(found.gradients[0]->at(static_cast<int64_t>(i)), (f(x[i] + 1e-5) - f(x[i] - 1e-5)) / 2e-5, 1e-9) << x[i];
  }
}

TEST(Dropout, GradientBelongsToTheSameMask) {
  for (double rate : {0.0, 0.25, 0.5, 1.0}) {
    const std::vector<Literal> found = evaluate({Literal::full(DType::F32, {64, 64}, 1), Literal::integer(DType::I64, 3), Literal::integer(DType::I64, 0)},
                                                [&](Builder&, const auto& in) -> std::vector<Value> {
                                                  const Value key = fold_in(in[1], in[2]);
                                                  return {dropout(in[0], rate, key), dropout(in[0], rate, fold_in(key, 0)),
                                                          dropout(in[0], rate, fold_in(in[1], in[2] + ones_like(in[2]))), dropout(in[0], rate, key)};
                                                });
    int64_t kept = 0;
    for (int64_t i = 0; i < 4096; ++i) {
      EXPECT_TRUE(found[0].at(i) == 0 || std::abs(found[0].at(i) - 1 / (1 - rate)) < 1e-6);
      kept += found[0].at(i) != 0;
    }
    EXPECT_NEAR(static_cast<double>(kept) / 4096, 1 - rate, 0.05);
    if (rate > 0 && rate < 1) {
      EXPECT_FALSE(found[0] == found[1]) << "two keys draw two masks";
      EXPECT_FALSE(found[0] == found[2]) << "another step draws another mask";
    }
    EXPECT_TRUE(found[0] == found[3]) << "one key draws one mask";
    Literal y;
    const auto gradient = differentiate({Literal::full(DType::F32, {64, 64}, 1), Literal::integer(DType::I64, 3), Literal::integer(DType::I64, 0)},
                                        [&](Builder&, const auto& in) { return sum(dropout(in[0], rate, fold_in(in[1], in[2]))); });
    EXPECT_TRUE(*gradient.gradients[0] == found[0]) << rate;
  }
}

}  // namespace derivative_cases_test
}  // namespace stepgraph::testing
