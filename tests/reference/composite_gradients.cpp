// SPDX-License-Identifier: Apache-2.0
// First and second gradients of composites against central differences in f64, those with a gradient of their own included; and in half precision.
#include <cmath>

#include <gtest/gtest.h>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/capture/layers.h"
#include "tests/reference/module_runner.h"

namespace stepgraph::testing {
namespace composite_gradients_test {

using Function = std::function<Value(const std::vector<Value>&)>;

/// y = sum(f * weights), so that every element of f counts differently.
Value weighted(const Value& f) {
  std::vector<double> weights = some_numbers(static_cast<size_t>(element_count(f.shape()).constant()), 77);
  Sizes sizes;
  for (const Dim& dim : f.shape()) sizes.push_back(dim.constant());
  return sum(f * constant(*f.builder, Literal::from_doubles(f.dtype(), sizes, weights)));
}

/// Of weighted(f), by the engine; second: of weighted(dy/dx0) again.
std::vector<double> gradient_of(const Function& f, const std::vector<Literal>& inputs, size_t which, bool second) {
  const auto found = differentiate(inputs, [&](Builder& builder, const std::vector<Value>& in) {
    const Value y = weighted(f(in));
    if (!second) return y;
    return weighted(*gradients(builder, y, std::vector<Value>{in[0]})[0]);
  });
  return found.gradients[which] ? found.gradients[which]->to_doubles() : std::vector<double>(static_cast<size_t>(inputs[which].count()));
}

double value_of(const Function& f, const std::vector<Literal>& inputs, bool second) {
  return evaluate(inputs, [&](Builder& builder, const std::vector<Value>& in) -> std::vector<Value> {
    const Value y = weighted(f(in));
    return {second ? weighted(*gradients(builder, y, std::vector<Value>{in[0]})[0]) : y};
  })[0].at(0);
}

void check(const char* name, const Function& f, const std::vector<Sizes>& sizes) {
  std::vector<Literal> inputs;
  for (size_t i = 0; i < sizes.size(); ++i)
    inputs.push_back(f64(sizes[i], some_numbers(static_cast<size_t>(element_count(sizes[i])), i + 1)));
  for (bool second : {false, true})
    for (size_t which = 0; which < inputs.size(); ++which) {
      const std::vector<double> found = gradient_of(f, inputs, which, second);
      for (int64_t e = 0; e < inputs[which].count(); ++e) {
        const double h = 1e-5, x = inputs[which].at(e);
        std::vector<Literal> above = inputs, below = inputs;
        above[which].set(e, x + h);
        below[which].set(e, x - h);
        const double wanted = (value_of(f, above, second) - value_of(f, below, second)) / (2 * h);
        EXPECT_NEAR(found[static_cast<size_t>(e)], wanted, 2e-8 * (1 + std::abs(wanted)))
            << name << (second ? " second" : "") << ", input " << which << " element " << e;
      }
    }
}

TEST(CompositeGradients, OfFirstAndSecondOrder) {
  check("softmax", [](const auto& in) { return softmax(in[0], 1); }, {{2, 3, 2}});
  check("safe_softmax", [](const auto& in) { return safe_softmax(in[0], -1); }, {{2, 3}});
  check("log_softmax", [](const auto& in) { return log_softmax(in[0], 0); }, {{3, 2}});
  check("gelu", [](const auto& in) { return gelu(in[0]); }, {{5}});
  check("gelu_tanh", [](const auto& in) { return gelu(in[0], GeluKind::Tanh); }, {{5}});
  check("silu", [](const auto& in) { return silu(in[0]); }, {{5}});
  check("linear", [](const auto& in) { return linear(in[0], in[1], in[2]); }, {{2, 1, 3}, {2, 3}, {2}});
  check("layer_norm", [](const auto& in) { return layer_norm(in[0], 2, in[1], in[2]); }, {{2, 2, 3}, {2, 3}, {2, 3}});
  check("batch_norm", [](const auto& in) { return batch_norm_training(in[0], in[1], in[2]).result; }, {{3, 2, 2}, {2}, {2}});
  check("mse", [](const auto& in) { return mse_sum(in[0], in[1]).numerator; }, {{2, 3}, {3}});
  check("attention", [](const auto& in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true}); },
        {{1, 2, 3, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}});
  check("attention of two lengths", [](const auto& in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3], .scale = 0.3}); },
        {{2, 2, 2}, {2, 3, 2}, {2, 3, 4}, {2, 3}});
}

TEST(CompositeGradients, SizesOfOneAndZero) {
  for (const Sizes& sizes : {Sizes{1, 1}, Sizes{0, 3}, Sizes{3, 1}}) {
    const auto found = differentiate({f64(sizes, some_numbers(static_cast<size_t>(element_count(sizes))))}, [](Builder&, const auto& in) {
      return sum(log_softmax(in[0], 1)) + sum(softmax(in[0], 1)) + sum(gelu(in[0])) + sum(layer_norm(in[0], 1));
    });
    for (double g : found.gradients[0]->to_doubles()) EXPECT_TRUE(std::isfinite(g));
  }
  // A matrix without rows: a gradient of zero for the weight, nothing to divide.
  const auto found = differentiate({f64({0, 3}, {}), f64({2, 3}, some_numbers(6)), i64({0}, {})}, [](Builder&, const auto& in) {
    return cross_entropy_sum(linear(in[0], in[1]), in[2]).numerator;
  });
  EXPECT_EQ(found.value.at(0), 0);
  EXPECT_EQ(found.gradients[1]->to_doubles(), std::vector<double>(6));
}

TEST(HalfPrecision, CompositesComputeInF32AndRoundOnce) {
  for (DType dtype : {DType::BF16, DType::F16}) {
    const std::vector<double> x = some_numbers(12);
    const Literal half = Literal::from_doubles(dtype, {3, 4}, x), wide = half.converted(DType::F32);
    const Body body = [](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
      return {softmax(in[0], 1), log_softmax(in[0], 1), gelu(in[0]), gelu(in[0], GeluKind::Tanh), silu(in[0]), layer_norm(in[0], 1),
              batch_norm_training(in[0], std::nullopt, std::nullopt).result};
    };
    const std::vector<Literal> found = evaluate({half}, body), wanted = evaluate({wide}, body);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i] == wanted[i].converted(dtype)) << name(dtype) << " " << i;
    // A loss of half-precision logits is an f32.
    const auto loss = evaluate({half, i64({3}, {0, 3, -100})}, [](Builder&, const auto& in) -> std::vector<Value> {
      const LossSum both = cross_entropy_sum(in[0], in[1]);
      return {both.numerator, both.denominator};
    });
    EXPECT_EQ(loss[0].dtype(), DType::F32);
    EXPECT_EQ(loss[1].dtype(), DType::F32);
  }
}

}  // namespace composite_gradients_test
}  // namespace stepgraph::testing
