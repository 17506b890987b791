// SPDX-License-Identifier: Apache-2.0
// Lion, RMSprop, Adagrad, Adafactor and averaged parameters against their rules written out as loops. The literal numbers are torch.optim's.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "stepgraph/compile/ops/functions.h"
#include "tests/reference/module_runner.h"

namespace stepgraph::testing {
namespace optimizer_values_test {

using Kind = Optimizer::Kind;
using Numbers = std::vector<double>;

const Numbers start{1, -2, .5, 3, -.25, .75};
const std::vector<Numbers> gradients{{.5, -1, 2, .25, -.75, 1.5}, {1, -.5, -1, .125, .5, -2}, {-.25, .75, .5, -1.5, 1, .375}};

Optimizer made(Kind kind, double rate, double decay = 0) {
  Optimizer optimizer;
  optimizer.kind = kind;
  optimizer.rate = rate;
  optimizer.weight_decay = decay;
  return optimizer;
}

/// A parameter "p" in f64 that starts at `start` and is given `gradients`.
ModuleRunner runner_of(const Optimizer& optimizer, const Shape& shape) {
  ModuleRunner runner(train_step(
      {{"g", DType::F64, shape}},
      [=](Scope s, Inputs in) -> Loss { return convert(sum(s.parameter("p", shape, initialize::zeros(), DType::F64) * in["g"]), DType::F32); }, optimizer));
  runner.state["p"] = Literal::from_doubles(DType::F64, runner.state.at("p").sizes(), start);
  return runner;
}
void run(ModuleRunner& runner, size_t steps = 3) {
  for (size_t i = 0; i < steps; ++i) runner.step({{"g", f64(runner.state.at("p").sizes(), gradients[i])}});
}
void expect_close(const Literal& found, const Numbers& wanted, double tolerance = 1e-13) {
  ASSERT_EQ(found.count(), static_cast<int64_t>(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found.at(static_cast<int64_t>(i)), wanted[i], tolerance) << i;
}

TEST(Lion, StepsBySignAndKeepsAMomentum) {
  Optimizer optimizer = made(Kind::Lion, .05, .1);
  optimizer.beta1 = .8;
  optimizer.alpha = .95;
  ModuleRunner runner = runner_of(optimizer, {6});
  run(runner);
  Numbers p = start, momentum(6, 0);
  for (const Numbers& g : gradients)
    for (size_t i = 0; i < 6; ++i) {
      const double mixed = .8 * momentum[i] + .2 * g[i];
      p[i] = p[i] * (1 - .05 * .1) - .05 * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
      momentum[i] = .95 * momentum[i] + .05 * g[i];
    }
  expect_close(runner.state.at("p"), p);
  expect_close(runner.state.at("p.exp_avg"), momentum);
}

TEST(Rmsprop, PlainAndCenteredWithMomentum) {
  ModuleRunner plain = runner_of(made(Kind::Rmsprop, .05), {6});
  EXPECT_EQ(plain.state.size(), 2U);
  run(plain);
  expect_close(plain.state.at("p"), {0.162075412547946, -1.55577375251106, 0.114454549509228, 2.76718063151504, -0.401116814622375, 0.576054840853485});

  Optimizer optimizer = made(Kind::Rmsprop, .05, .1);
  optimizer.alpha = .9;
  optimizer.epsilon = 1e-6;
  optimizer.momentum = .5;
  optimizer.centered = true;
  ModuleRunner runner = runner_of(optimizer, {6});
  run(runner);
  expect_close(runner.state.at("p"), {0.504277793805321, -1.64214798539228, 0.274449419721501, 2.68792987391656, -0.213603493022965, 0.61747313073595});
  Numbers p = start, squares(6, 0), average(6, 0), buffer(6, 0);
  for (const Numbers& given : gradients)
    for (size_t i = 0; i < 6; ++i) {
      const double g = given[i] + .1 * p[i];
      squares[i] = .9 * squares[i] + .1 * g * g;
      average[i] = .9 * average[i] + .1 * g;
      buffer[i] = .5 * buffer[i] + g / (std::sqrt(squares[i] - average[i] * average[i]) + 1e-6);
      p[i] -= .05 * buffer[i];
    }
  expect_close(runner.state.at("p"), p);
  expect_close(runner.state.at("p.square_avg"), squares);
  expect_close(runner.state.at("p.grad_avg"), average);
  expect_close(runner.state.at("p.momentum_buffer"), buffer);
}

TEST(Adagrad, RateDecaysAndSquaresAddUp) {
  Optimizer optimizer = made(Kind::Adagrad, .1, .1);
  optimizer.rate_decay = .25;
  optimizer.epsilon = 1e-6;
  ModuleRunner runner = runner_of(optimizer, {6});
  run(runner);
  expect_close(runner.state.at("p"), {0.838785426189828, -1.88527710396022, 0.418366209663174, 2.90980370771811, -0.241204167224554, 0.700308420759188});
  Numbers p = start, total(6, 0);
  for (size_t step = 0; step < 3; ++step)
    for (size_t i = 0; i < 6; ++i) {
      const double g = gradients[step][i] + .1 * p[i];
      total[i] += g * g;
      p[i] -= .1 / (1 + .25 * static_cast<double>(step)) * g / (std::sqrt(total[i]) + 1e-6);
    }
  expect_close(runner.state.at("p"), p);
  expect_close(runner.state.at("p.sum"), total);
}

double root_mean_square(const Numbers& x) {
  double squares = 0;
  for (double v : x) squares += v * v;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

/// The rule for one matrix of two rows and three columns.
Numbers plain_adafactor(double rate, double decay, double clip, double power, double minimum, double small) {
  Numbers p = start, row(2, 0), column(3, 0);
  for (size_t step = 0; step < 3; ++step) {
    const Numbers& g = gradients[step];
    const double number = static_cast<double>(step + 1), fresh = std::pow(number, power);
    const double scale = std::max(minimum, root_mean_square(p)) * std::min(rate, 1 / std::sqrt(number));
    Numbers rows(2, 0), columns(3, 0), update(6);
    for (size_t r = 0; r < 2; ++r)
      for (size_t c = 0; c < 3; ++c) rows[r] += g[3 * r + c] * g[3 * r + c] / 3, columns[c] += g[3 * r + c] * g[3 * r + c] / 2;
    for (size_t r = 0; r < 2; ++r) row[r] += fresh * (rows[r] - row[r]);
    for (size_t c = 0; c < 3; ++c) column[c] += fresh * (columns[c] - column[c]);
    const double mean = std::max((row[0] + row[1]) / 2, small);
    for (size_t i = 0; i < 6; ++i) update[i] = g[i] / std::sqrt(std::max(row[i / 3] * column[i % 3] / mean, small * small));
    const double size = std::max(1.0, root_mean_square(update) / clip);
    for (size_t i = 0; i < 6; ++i) p[i] = p[i] * (1 - rate * decay) - scale / size * update[i];
  }
  return p;
}

TEST(Adafactor, MatricesKeepARowAndAColumn) {
  ModuleRunner runner = runner_of(made(Kind::Adafactor, .05, .1), {2, 3});
  EXPECT_EQ(runner.state.at("p.row_var").sizes(), (Sizes{2, 1}));
  EXPECT_EQ(runner.state.at("p.col_var").sizes(), (Sizes{1, 3}));
  run(runner);
  expect_close(runner.state.at("p"), {0.796314489533905, -1.91719985886146, 0.428989142339625, 3.0040761992121, -0.309244904000501, 0.730052462632981});
  expect_close(runner.state.at("p"), plain_adafactor(.05, .1, 1, -.8, 1e-3, 0x1p-52));
}

TEST(Adafactor, OptionsAndLargeRates) {
  Optimizer optimizer = made(Kind::Adafactor, .9, .1);
  optimizer.clip_threshold = 1.25;
  optimizer.beta2_decay = -.5;
  optimizer.minimum_scale = 2;
  ModuleRunner runner = runner_of(optimizer, {2, 3});
  run(runner);
  expect_close(runner.state.at("p"), {-2.65857489381312, -0.2921753247372, -0.905874627413881, 2.54250661702865, -0.917707887458535, 0.220018332075123});
  expect_close(runner.state.at("p"), plain_adafactor(.9, .1, 1.25, -.5, 2, 0x1p-52));
}

TEST(Adafactor, VectorsKeepTheirVariance) {
  ModuleRunner runner = runner_of(made(Kind::Adafactor, .05, .1), {6});
  run(runner);
  expect_close(runner.state.at("p"), {0.844655568841507, -1.91595602300562, 0.433486916036191, 2.94066390521536, -0.320898524137088, 0.724149482288346});
  EXPECT_EQ(runner.state.count("p.row_var"), 0U);
  EXPECT_EQ(runner.state.at("p.variance").sizes(), (Sizes{6}));
}

TEST(Average, StartsFromTheFirstValueAndFollows) {
  for (Kind kind : {Kind::Sgd, Kind::Adam, Kind::AdamW, Kind::Lion, Kind::Rmsprop, Kind::Adagrad, Kind::Adafactor}) {
    Optimizer optimizer = made(kind, .05, .1);
    if (kind == Kind::Sgd) optimizer.momentum = .5;
    ModuleRunner without = runner_of(optimizer, {2, 3});
    optimizer.ema_decay = .75;
    ModuleRunner runner = runner_of(optimizer, {2, 3});
    Numbers average = start;
    for (size_t step = 0; step < 3; ++step) {
      runner.step({{"g", f64({2, 3}, gradients[step])}});
      without.step({{"g", f64({2, 3}, gradients[step])}});
      EXPECT_TRUE(runner.state.at("p") == without.state.at("p")) << "the average changes nothing";
      for (size_t i = 0; i < 6; ++i) average[i] = .75 * average[i] + .25 * runner.state.at("p").at(static_cast<int64_t>(i));
      expect_close(runner.state.at("p.ema"), average);
    }
  }
}

TEST(MoreOptimizers, OutOfRangeValuesAreRefused) {
  const auto message = [](const std::function<void(Optimizer&)>& change) -> std::string {
    Optimizer optimizer;
    change(optimizer);
    try {
      check(optimizer);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([](Optimizer& o) { o.alpha = 1; }), "optimizer: alpha is 1, wanted a number in [0, 1)");
  EXPECT_EQ(message([](Optimizer& o) { o.ema_decay = 1; }), "optimizer: ema decay is 1, wanted a number in [0, 1)");
  EXPECT_EQ(message([](Optimizer& o) { o.beta2_decay = .5; }), "optimizer: beta2 decay is 0.5, wanted a number of at most 0");
  EXPECT_EQ(message([](Optimizer& o) { o.clip_threshold = .5; }), "optimizer: clip threshold is 0.5, wanted a number of at least 1");
}

}  // namespace optimizer_values_test
}  // namespace stepgraph::testing
