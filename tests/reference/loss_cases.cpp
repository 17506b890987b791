// SPDX-License-Identifier: Apache-2.0
// Losses as sums over sums: what counts, what is ignored, and that no split of a batch changes the gradient.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/reference/module_runner.h"
#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/on_reference.h"

namespace stepgraph::testing {
namespace loss_cases_test {

/// Tokens with weights in {0, 1} and a gradient each: L = sum(w * gradient * valid) / sum(valid).
Module token_model(int64_t micro_batches, const Optimizer& optimizer = {}) {
  StepOptions options;
  options.micro_batches = micro_batches;
  options.gradients_as_outputs = true;
  const Dim batch = Dim::symbol("batch");
  return train_step(
      {{"slope", DType::F32, {batch, 7}}, {"valid", DType::Bool, {batch, 7}}},
      [](Scope s, Inputs in) -> Loss {
        const Value w = s.parameter("w", {}, initialize::ones()), valid = convert(in["valid"], DType::F32);
        return {sum(in["slope"] * w * valid), sum(valid)};
      },
      optimizer, options);
}

struct Tokens {
  std::vector<double> slope;
  std::vector<int64_t> valid;
  void row(int64_t count, double value) {
    for (int64_t i = 0; i < 7; ++i) slope.push_back(i < count ? value : 1e30), valid.push_back(i < count);
  }
};

double gradient_of(const Tokens& tokens, int64_t micro_batches) {
  const auto rows = static_cast<int64_t>(tokens.slope.size()) / 7;
  const Sizes sizes = micro_batches == 1 ? Sizes{rows, 7} : Sizes{micro_batches, rows / micro_batches, 7};
  ModuleRunner runner(token_model(micro_batches));
  const EntryOutputs found = runner.step({{"slope", f32(sizes, tokens.slope)}, {"valid", Literal::from_integers(DType::Bool, sizes, tokens.valid)}});
  EXPECT_TRUE(std::isfinite(runner.state.at("w").at(0)));
  return found.gradients.at("w").at(0);
}

TEST(Denominator, AnySplitOfTheSameTokensGivesTheSameGradient) {
  Tokens tokens;
  tokens.row(1, 8);
  tokens.row(7, 0);
  tokens.row(3, 2);
  tokens.row(1, 2);
  for (int64_t micro_batches : {1, 2, 4}) EXPECT_NEAR(gradient_of(tokens, micro_batches), 16.0 / 12, 1e-6) << micro_batches;
}

TEST(Denominator, RanksAndMicroBatchesTogether) {
  // Ranks hold {8; 0 x 7} and {2 x 3; 2 x 1}, each a row of one micro-batch: neither a mean of means nor a mean over ranks.
  Tokens tokens;
  tokens.row(1, 8);
  tokens.row(3, 2);
  tokens.row(7, 0);
  tokens.row(1, 2);
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::Sgd;
  sgd.rate = 1;
  for (const char* mesh : {"", "data=2", "data=3", "data=4"})
    for (int64_t micro_batches : {1, 2}) {
      Trainer trainer(token_model(micro_batches, sgd), testing::on_reference({.mesh = mesh}));
      trainer.step({{"slope", f32({4, 7}, tokens.slope)}, {"valid", Literal::from_integers(DType::Bool, {4, 7}, tokens.valid)}});
      const NamedArrays weights = trainer.weights();
      EXPECT_NEAR(1 - weights.at(0).second.at(0), 16.0 / 12, 1e-6) << mesh << " " << micro_batches;
    }
}

TEST(Denominator, MicroBatchWithoutAnyTokenGivesNoNan) {
  Tokens tokens;
  tokens.row(0, 0);
  tokens.row(4, 3);
  for (int64_t micro_batches : {1, 2}) EXPECT_NEAR(gradient_of(tokens, micro_batches), 3, 1e-6) << micro_batches;
  Tokens none;
  none.row(0, 0);
  none.row(0, 0);
  for (int64_t micro_batches : {1, 2}) EXPECT_EQ(gradient_of(none, micro_batches), 0) << micro_batches;
}

std::vector<double> plain_log_softmax(const std::vector<double>& x) {
  double top = -INFINITY, total = 0;
  for (double v : x) top = std::max(top, v);
  for (double v : x) total += std::exp(v - top);
  std::vector<double> result;
  for (double v : x) result.push_back(v - top - std::log(total));
  return result;
}

TEST(CrossEntropy, IgnoredTargetsMayHoldAnything) {
  // Rows 1 and 3 are ignored; their targets lie outside the classes.
  for (int64_t ignored : {int64_t{-100}, int64_t{3}, int64_t{1} << 40}) {
    const std::vector<double> x = some_numbers(4 * 3);
    const auto model = [&](Builder&, const std::vector<Value>& in) {
      return cross_entropy_sum(in[0], in[1], {.class_dim = -1, .ignore_index = ignored}).numerator;
    };
    const Literal targets = i64({4}, {2, ignored, 0, ignored});
    const auto found = differentiate({f64({4, 3}, x), targets}, model);
    double loss = 0;
    for (size_t row : {size_t{0}, size_t{2}}) {
      const size_t target = row == 0 ? 2 : 0;
      const std::vector<double> logs = plain_log_softmax({x.begin() + static_cast<long>(row * 3), x.begin() + static_cast<long>(row * 3 + 3)});
      loss -= logs[target];
      for (size_t c = 0; c < 3; ++c)
        EXPECT_NEAR(found.gradients[0]->at(static_cast<int64_t>(row * 3 + c)), std::exp(logs[c]) - (c == target), 1e-12);
    }
    EXPECT_NEAR(found.value.at(0), loss, 1e-12);
    for (int64_t i : {3, 4, 5, 9, 10, 11}) EXPECT_EQ(found.gradients[0]->at(i), 0);
    const auto count = evaluate({f64({4, 3}, x), targets}, [&](Builder&, const auto& in) -> std::vector<Value> {
      const LossSum loss_sum = cross_entropy_sum(in[0], in[1], {.class_dim = -1, .ignore_index = ignored});
      const LossSum right = accuracy_sum(in[0], in[1], {.class_dim = -1, .ignore_index = ignored});
      return {loss_sum.denominator, right.denominator};
    });
    EXPECT_EQ(count[0].at(0), 2);
    EXPECT_EQ(count[1].at(0), 2);
  }
}

TEST(CrossEntropy, ClassesInAnyDimAndTargetsOfAnyIntegerDtype) {
  const std::vector<double> x = some_numbers(2 * 3 * 4);
  std::vector<double> moved(x.size());
  for (size_t n = 0; n < 2; ++n)
    for (size_t c = 0; c < 3; ++c)
      for (size_t p = 0; p < 4; ++p) moved[(n * 4 + p) * 3 + c] = x[(n * 3 + c) * 4 + p];
  const std::vector<int64_t> targets{0, 1, 2, 0, 2, 1, 0, 2};
  for (DType dtype : {DType::I64, DType::I32, DType::U8, DType::I8}) {
    const auto found = evaluate({f64({2, 3, 4}, x), f64({2, 4, 3}, moved), Literal::from_integers(dtype, {2, 4}, targets)},
                                [](Builder&, const auto& in) -> std::vector<Value> {
                                  return {cross_entropy_sum(in[0], in[2], {.class_dim = 1}).numerator, cross_entropy_sum(in[1], in[2]).numerator,
                                          accuracy_sum(in[0], in[2], {.class_dim = 1}).numerator, accuracy_sum(in[1], in[2]).numerator};
                                });
    EXPECT_NEAR(found[0].at(0), found[1].at(0), 1e-12);
    EXPECT_EQ(found[2].at(0), found[3].at(0));
  }
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  const auto found = differentiate({f32({1, 2}, {-1e4, 1e4}), i64({1}, {0})},
                                   [](Builder&, const auto& in) { return cross_entropy_sum(in[0], in[1]).numerator; });
  EXPECT_EQ(found.value.at(0), 2e4);
  EXPECT_EQ(found.gradients[0]->to_doubles(), (std::vector<double>{-1, 1}));
}

TEST(CrossEntropy, ATargetOutsideTheClassesIsAnError) {
  const auto run = [](int64_t target) {
    return evaluate({f32({1, 2}, {0, 0}), i64({1}, {target})},
                    [](Builder&, const auto& in) -> std::vector<Value> { return {cross_entropy_sum(in[0], in[1]).numerator}; });
  };
  EXPECT_THROW(run(2), UserError);
  EXPECT_THROW(run(-1), UserError);
  EXPECT_NEAR(run(1)[0].at(0), std::log(2), 1e-6);
  EXPECT_EQ(run(-100)[0].at(0), 0);
}

TEST(Mse, CountsElementsOfTheBroadcastShape) {
  const auto found = evaluate({f32({2, 2}, {1, 2, 3, 4}), f32({2}, {1, 1})}, [](Builder&, const auto& in) -> std::vector<Value> {
    const LossSum loss = mse_sum(in[0], in[1]);
    return {loss.numerator, loss.denominator};
  });
  EXPECT_EQ(found[0].at(0), 0 + 1 + 4 + 9);
  EXPECT_EQ(found[1].at(0), 4);
}

// ---- batch norm: statistics are of the whole batch, and state is written once

Module norm_model(bool regression) {
  const Dim batch = Dim::symbol("batch");
  return train_step(
      {{"x", DType::F32, {batch, 2}}},
      [=](Scope s, Inputs in) -> Loss {
        const Value y = batch_norm(s / "bn", in["x"]);
        return Loss(mse_loss(y, in["x"] * (regression ? 1.0 : 0.0))).output("y", y);
      },
      Optimizer{});
}

TEST(BatchNorm, RunningStatisticsMoveOnceAStep) {
  ModuleRunner runner(norm_model(false));
  const Literal x = f32({4, 2}, {1, 2, 3, -2, 5, 0, -1, 4});
  runner.step({{"x", x}});
  for (int64_t c = 0; c < 2; ++c) EXPECT_NEAR(runner.state.at("bn.running_mean").at(c), c == 0 ? .2 : .1, 1e-7);
  for (int64_t c = 0; c < 2; ++c) EXPECT_NEAR(runner.state.at("bn.running_var").at(c), 1.566667, 1e-6);
  EXPECT_EQ(runner.state.at("bn.num_batches_tracked").integer_at(0), 1);
  runner.step({{"x", x}});
  for (int64_t c = 0; c < 2; ++c) EXPECT_NEAR(runner.state.at("bn.running_mean").at(c), c == 0 ? .38 : .19, 1e-7);
  EXPECT_EQ(runner.state.at("bn.num_batches_tracked").integer_at(0), 2);
}

TEST(BatchNorm, EvaluationUsesAndKeepsTheRunningStatistics) {
  ModuleRunner runner(norm_model(false));
  runner.state["bn.running_mean"] = f32({2}, {1, 2});
  runner.state["bn.running_var"] = f32({2}, {4, 9});
  const State before = runner.state;
  const Literal y = runner.eval({{"x", f32({1, 2}, {3, 5})}}).user.at("y");
  EXPECT_NEAR(y.at(0), 1, 1e-5);
  EXPECT_NEAR(y.at(1), 1, 1e-5);
  EXPECT_TRUE(runner.state == before);
}

TEST(BatchNorm, OneValueAChannelKeepsItsVarianceFinite) {
  ModuleRunner runner(norm_model(true));
  runner.step({{"x", f32({1, 2}, {3, 5})}});
  EXPECT_NEAR(runner.state.at("bn.running_var").at(0), .9, 1e-6);
  EXPECT_TRUE(std::isfinite(runner.state.at("bn.weight").at(0)));
}

TEST(BatchNorm, GradientAgainstLoops) {
  // [N, C, H, W]; L = sum(y * g); dx = w/s * (g - mean(g) - h * mean(g h)) over all but C.
  const size_t N = 3, C = 2, P = 4;
  const std::vector<double> x = some_numbers(N * C * P), g = some_numbers(N * C * P, 2), w{1.5, -.5}, b{.25, 2};
  const auto found = differentiate({f64({3, 2, 2, 2}, x), f64({2}, w), f64({2}, b), f64({3, 2, 2, 2}, g)},
                                   [](Builder&, const auto& in) { return sum(batch_norm_training(in[0], in[1], in[2]).result * in[3]); });
  std::vector<double> dx(x.size()), dw(C), db(C);
  const double count = N * P;
  for (size_t c = 0; c < C; ++c) {
    const auto each = [&](const auto& visit) {
      for (size_t n = 0; n < N; ++n)
        for (size_t p = 0; p < P; ++p) visit((n * C + c) * P + p);
    };
    double mean = 0, variance = 0, mean_gh = 0;
    each([&](size_t i) { mean += x[i] / count; });
    each([&](size_t i) { variance += (x[i] - mean) * (x[i] - mean) / count; });
    const double inverse = 1 / std::sqrt(variance + static_cast<double>(1e-5));
    each([&](size_t i) { db[c] += g[i], dw[c] += g[i] * (x[i] - mean) * inverse; });
    mean_gh = dw[c] / count;
    each([&](size_t i) { dx[i] = w[c] * inverse * (g[i] - db[c] / count - (x[i] - mean) * inverse * mean_gh); });
  }
  EXPECT_LE(relative_difference(*found.gradients[0], dx), 1e-12);
  EXPECT_LE(relative_difference(*found.gradients[1], dw), 1e-12);
  EXPECT_LE(relative_difference(*found.gradients[2], db), 1e-12);
}

}  // namespace loss_cases_test
}  // namespace stepgraph::testing
