// SPDX-License-Identifier: Apache-2.0
// Optimizers, clipping, schedules and groups against PyTorch's rules, written out as numbers or loops.
#include <cmath>

#include <gtest/gtest.h>

#include "stepgraph/base/pattern.h"
#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/ops/functions.h"
#include "tests/reference/module_runner.h"
#include "tests/support/error_of.h"

namespace stepgraph::testing {
namespace optimizer_cases_test {

/// One parameter "p" whose gradient is the batch input "g".
Module given_gradient(const Optimizer& optimizer, double start, const StepOptions& options = {}, DType dtype = DType::F32, Shape shape = {}) {
  return train_step(
      {{"g", dtype, shape}},
      [=](Scope s, Inputs in) -> Loss { return convert(sum(s.parameter("p", shape, initialize::constant(start), dtype) * in["g"]), DType::F32); },
      optimizer, options);
}

double run(ModuleRunner& runner, const std::vector<double>& gradients, std::vector<double>* values = nullptr) {
  for (double g : gradients) {
    runner.step({{"g", Literal::scalar(runner.state.at("p").dtype(), g)}});
    if (values) values->push_back(runner.state.at("p").at(0));
  }
  return runner.state.at("p").at(0);
}

Optimizer adam(Optimizer::Kind kind, double rate, double decay) {
  Optimizer optimizer;
  optimizer.kind = kind;
  optimizer.rate = rate;
  optimizer.weight_decay = decay;
  return optimizer;
}

TEST(Adam, DecayEntersTheGradient) {
  ModuleRunner runner(given_gradient(adam(Optimizer::Kind::Adam, .1, .1), 2));
  std::vector<double> values;
  run(runner, {.5}, &values);
  EXPECT_NEAR(runner.state.at("p.exp_avg").at(0), .07, 1e-7);
  run(runner, {-.25, 1}, &values);
  const std::vector<double> wanted{1.9, 1.839597, 1.760836};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(values[i], wanted[i], 2e-6) << i;
}

TEST(AdamW, DecayLeavesTheGradientAlone) {
  ModuleRunner runner(given_gradient(adam(Optimizer::Kind::AdamW, .1, .1), 2));
  std::vector<double> values;
  run(runner, {.5}, &values);
  EXPECT_NEAR(runner.state.at("p.exp_avg").at(0), .05, 1e-7);
  EXPECT_NEAR(runner.state.at("p.exp_avg_sq").at(0), .25e-3, 1e-9);
  run(runner, {-.25, 1}, &values);
  const std::vector<double> wanted{1.88, 1.834566, 1.750409};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(values[i], wanted[i], 2e-6) << i;
}

TEST(Adam, ResumedByNameGoesOnAsIfNeverStopped) {
  Optimizer optimizer = adam(Optimizer::Kind::Adam, .1, 0);
  optimizer.beta1 = .8;
  optimizer.beta2 = .95;
  ModuleRunner whole(given_gradient(optimizer, 1));
  run(whole, {1, 2, -1, .5});
  EXPECT_NEAR(whole.state.at("p").at(0), .7255311, 2e-7);

  ModuleRunner first(given_gradient(optimizer, 1));
  run(first, {1, 2, -1});
  ModuleRunner second(given_gradient(optimizer, 1), 99);
  second.state = first.state;
  second.steps_done = first.steps_done;
  run(second, {.5});
  EXPECT_TRUE(second.state == whole.state) << "bit for bit";
}

TEST(Adam, StateFollowsTheNameWhenTheOrderOfParametersChanges) {
  const auto model = [](bool swapped) {
    return train_step(
        {{"g", DType::F32, {2}}},
        [=](Scope s, Inputs in) -> Loss {
          const auto term = [&](const char* name, int64_t i) { return s.parameter(name, {}, initialize::ones()) * select(in["g"], 0, i); };
          if (swapped) {
            const Value b = term("b", 1);
            return b + term("a", 0);
          }
          const Value a = term("a", 0);
          return a + term("b", 1);
        },
        adam(Optimizer::Kind::Adam, .1, 0));
  };
  ModuleRunner straight(model(false)), swapped(model(true));
  for (int i = 0; i < 2; ++i) straight.step({{"g", f32({2}, {1, -3})}});
  swapped.state = straight.state;
  swapped.steps_done = straight.steps_done;
  straight.step({{"g", f32({2}, {2, 5})}});
  swapped.step({{"g", f32({2}, {2, 5})}});
  EXPECT_TRUE(straight.state == swapped.state);
  EXPECT_NE(straight.state.at("a.exp_avg").at(0), straight.state.at("b.exp_avg").at(0));
}

TEST(Sgd, MomentumDampeningNesterovAndDecay) {
  struct Case {
    double momentum, dampening, decay;
    bool nesterov;
  };
  const std::vector<double> gradients{1, -2, .5, 3};
  for (const Case& c : {Case{0, 0, 0, false}, Case{0, 0, .1, false}, Case{.875, 0, 0, false}, Case{.875, .25, .1, false}, Case{.875, 0, .1, true}}) {
    Optimizer optimizer;
    optimizer.kind = Optimizer::Kind::Sgd;
    optimizer.rate = .1;
    optimizer.momentum = c.momentum;
    optimizer.dampening = c.dampening;
    optimizer.weight_decay = c.decay;
    optimizer.nesterov = c.nesterov;
    ModuleRunner runner(with_floating_dtype(given_gradient(optimizer, 2), DType::F64));
    EXPECT_EQ(runner.state.count("p.momentum_buffer"), c.momentum != 0 ? 1U : 0U);
    double p = 2, buffer = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      double d = gradients[i] + c.decay * p;
      if (c.momentum != 0) {
        buffer = i == 0 ? d : c.momentum * buffer + (1 - c.dampening) * d;
        d = c.nesterov ? d + c.momentum * buffer : buffer;
      }
      p -= .1 * d;
      EXPECT_NEAR(run(runner, {gradients[i]}), p, 1e-14) << c.momentum << " step " << i;
    }
  }
}

TEST(Clip, HalfPrecisionGradientsTakeTheirNormInF32) {
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::Sgd;
  sgd.rate = 1;
  StepOptions options;
  options.clip_norm = 1;
  options.gradients_as_outputs = true;
  ModuleRunner runner(given_gradient(sgd, 0, options, DType::F16, {2}));
  const EntryOutputs found = runner.step({{"g", Literal::from_doubles(DType::F16, {2}, std::vector<double>{240, 320})}});
  EXPECT_EQ(found.gradient_norm.at(0), 400);
  EXPECT_EQ(found.gradients.at("p").to_doubles(), (std::vector<double>{.60009765625, .7998046875}));
  EXPECT_EQ(runner.state.at("p").to_doubles(), (std::vector<double>{-.60009765625, -.7998046875}));
}

TEST(Clip, SmallNormsStayAsTheyAre) {
  StepOptions options;
  options.clip_norm = 10;
  options.gradients_as_outputs = true;
  ModuleRunner runner(given_gradient(Optimizer{}, 0, options, DType::F32, {2}));
  EXPECT_EQ(runner.step({{"g", f32({2}, {3, -4})}}).gradients.at("p").to_doubles(), (std::vector<double>{3, -4}));
  EXPECT_EQ(runner.step({{"g", f32({2}, {0, 0})}}).gradients.at("p").to_doubles(), (std::vector<double>{0, 0}));
}

TEST(Clip, AnInfiniteGradientIsNeverZeroedOrNegated) {
  StepOptions options;
  options.clip_norm = 1;
  options.gradients_as_outputs = true;
  ModuleRunner runner(given_gradient(Optimizer{}, 0, options, DType::F32, {2}));
  const EntryOutputs found = runner.step({{"g", f32({2}, {INFINITY, 1})}});
  EXPECT_TRUE(std::isinf(found.gradient_norm.at(0)));
  for (double g : found.gradients.at("p").to_doubles()) EXPECT_TRUE(std::isnan(g)) << "the step shows itself as spoilt";
}

TEST(Schedule, ValuesEqualNumbers) {
  const std::vector<Schedule> schedules{0.1,
                                        warmup_cosine(3e-4, 10, 40, 1e-5),
                                        warmup_cosine(1, 0, 5),
                                        warmup_linear(2e-3, 3, 7, 1e-3),
                                        step_decay(0.5, 4, 0.1),
                                        step_decay(0.5, 1, 0)};
  for (size_t i = 0; i < schedules.size(); ++i)
    for (int64_t step : {0, 1, 2, 3, 4, 6, 7, 9, 10, 11, 25, 39, 40, 41, 1000}) {
      const auto found = evaluate({Literal::integer(DType::I64, step)}, [&](Builder&, const auto& in) -> std::vector<Value> {
        return {learning_rate(schedules[i], in[0]), learning_rate_f64(schedules[i], in[0])};
      });
      const double wanted = learning_rate_at(schedules[i], step);
      EXPECT_EQ(found[0].dtype(), DType::F32);
      EXPECT_NEAR(found[0].at(0), wanted, 1e-7 * std::abs(wanted) + 1e-40) << i << " step " << step;
      EXPECT_NEAR(found[1].at(0), wanted, 1e-14 * std::abs(wanted)) << i << " step " << step;
    }
}

TEST(Schedule, KnownPoints) {
  const Schedule cosine = warmup_cosine(1, 4, 12, 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 3), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 8), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 12), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 999), 0.2);
  const Schedule linear = warmup_linear(1, 2, 6);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 4), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(step_decay(8, 3, 0.5), 7), 2);
}

TEST(Patterns, StarsAndQuestionMarks) {
  EXPECT_TRUE(matches("*.bias", "h.0.bias"));
  EXPECT_FALSE(matches("*.bias", "bias"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("h.?.ln_*", "h.3.ln_1.weight"));
  EXPECT_FALSE(matches("h.?.ln_*", "h.13.ln_1.weight"));
  EXPECT_TRUE(matches("*a*b", "xxaybzb"));
  EXPECT_FALSE(matches("*a*b", "xxaybz"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches(std::string(40, '*') + "b", std::string(2000, 'a')));
}

Module two_layers(const Optimizer& optimizer) {
  return train_step(
      {{"g", DType::F32, {}}},
      [](Scope s, Inputs in) -> Loss {
        const Value kept = (s / "head").parameter("weight", {}, initialize::ones()), base = (s / "base").parameter("weight", {}, initialize::ones());
        return (kept + base) * in["g"];
      },
      optimizer);
}

TEST(Groups, RateDecayAndFreezingByName) {
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Sgd;
  optimizer.rate = .1;
  optimizer.weight_decay = .5;
  ParameterGroup head;
  head.patterns = {"head.*"};
  head.rate_factor = 10;
  head.weight_decay = 0;
  ParameterGroup frozen;
  frozen.patterns = {"base.*"};
  frozen.frozen = true;
  optimizer.groups = {head};
  ModuleRunner first(two_layers(optimizer));
  first.step({{"g", Literal::scalar(DType::F32, 1)}});
  EXPECT_FLOAT_EQ(static_cast<float>(first.state.at("head.weight").at(0)), 0);       // 1 - 10 * .1 * 1
  EXPECT_FLOAT_EQ(static_cast<float>(first.state.at("base.weight").at(0)), .85F);    // 1 - .1 * (1 + .5)
  optimizer.kind = Optimizer::Kind::AdamW;
  optimizer.groups = {head, frozen};
  ModuleRunner second(two_layers(optimizer));
  EXPECT_EQ(second.state.count("base.weight.exp_avg"), 0U);
  EXPECT_EQ(second.state.count("head.weight.exp_avg"), 1U);
  second.step({{"g", Literal::scalar(DType::F32, 1)}});
  EXPECT_EQ(second.state.at("base.weight").at(0), 1);
  EXPECT_NE(second.state.at("head.weight").at(0), 1);
}

TEST(Groups, APatternThatMatchesNothingNamesTheNearest) {
  Optimizer optimizer;
  ParameterGroup group;
  group.patterns = {"haed.weight"};
  optimizer.groups = {group};
  EXPECT_EQ(testing::error_of([&] { two_layers(optimizer); }), "optimizer: pattern 'haed.weight' matches no parameter; nearest are head.weight, base.weight");
  optimizer.groups.clear();
  optimizer.weight_decay = 0.1;
  optimizer.no_decay = {"baes.*"};
  EXPECT_EQ(testing::error_of([&] { two_layers(optimizer); }), "optimizer: no_decay: pattern 'baes.*' matches no parameter; nearest are base.weight, head.weight");
}

TEST(Groups, APatternThatChangesNothingIsRefused) {
  const auto message = [](const std::function<void(Optimizer&)>& change) {
    Optimizer optimizer;
    change(optimizer);
    return testing::error_of([&] { two_layers(optimizer); });
  };
  EXPECT_EQ(message([](Optimizer& o) { o.no_decay = {"base.*"}; }),
            "optimizer: no_decay: pattern 'base.*' changes nothing: base.weight is treated alike without it, with a rate factor of 1 and a weight decay of 0");
  EXPECT_EQ(message([](Optimizer& o) { o.weight_decay = 0.1, o.no_decay = {"base.*"}; }), "no error");
  EXPECT_EQ(message([](Optimizer& o) { o.groups = {{{"base.*"}, 1, {}, false}}; }),
            "optimizer: pattern 'base.*' changes nothing: base.weight is treated alike without it, with a rate factor of 1 and a weight decay of 0");
  EXPECT_EQ(message([](Optimizer& o) { o.groups = {{{"*"}, 2, {}, false}, {{"head.*"}, 1, {}, true}}; }),
            "optimizer: pattern 'head.*' changes nothing: head.weight is treated alike without it, with a rate factor of 2 and a weight decay of 0");
  EXPECT_EQ(message([](Optimizer& o) { o.groups = {{{"head.*"}, 1, {}, false}, {{"*"}, 2, {}, false}}; }), "no error") << "it keeps the second group away";
}

TEST(OptimizerOptions, OutOfRangeValuesAreRefused) {
  const auto message = [](const std::function<void(Optimizer&)>& change) {
    Optimizer optimizer;
    change(optimizer);
    return testing::error_of([&] { check(optimizer); });
  };
  EXPECT_EQ(message([](Optimizer&) {}), "no error");
  EXPECT_EQ(message([](Optimizer& o) { o.beta1 = 1; }), "optimizer: beta1 is 1, wanted a number in [0, 1)");
  EXPECT_EQ(message([](Optimizer& o) { o.weight_decay = -1; }), "optimizer: weight decay is -1, wanted a number of at least 0");
  EXPECT_EQ(message([](Optimizer& o) { o.nesterov = true; }), "optimizer: nesterov wants a momentum above 0 and a dampening of 0");
  EXPECT_EQ(message([](Optimizer& o) { o.rate = -1.0; }), "schedule: rate is -1, wanted a number of at least 0");
  EXPECT_EQ(message([](Optimizer& o) { o.rate = warmup_cosine(1, 5, 5); }), "schedule: total is 5, wanted more steps than the 5 of warmup");
  EXPECT_EQ(message([](Optimizer& o) { o.rate = step_decay(1, 0, .1); }), "schedule: every is 0, wanted at least 1 step");
  EXPECT_EQ(message([](Optimizer& o) { o.groups.emplace_back(); }), "optimizer: a parameter group has no patterns");
}

}  // namespace optimizer_cases_test
}  // namespace stepgraph::testing
