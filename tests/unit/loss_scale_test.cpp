// SPDX-License-Identifier: Apache-2.0
// Loss scaling: one scale for the backward and the division in every step, one decision for everything that a step changes, on any number of ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/on_reference.h"

namespace stepgraph {
namespace loss_scale_test {

const Dim batch = Dim::symbol("batch");
constexpr double infinity = std::numeric_limits<double>::infinity();

Optimizer sgd(double rate) {
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Sgd;
  optimizer.rate = rate;
  return optimizer;
}
/// Starts with 8 and doubles after every good step.
LossScale fast() { return {.kind = LossScale::Kind::Dynamic, .start = 8, .interval = 1}; }

/// The mean of x times w: with x = 0.25 that is the gradient of w, which starts with zero.
Loss linear_loss(Scope s, Inputs in) { return mean(in["x"]) * s.parameter("w", {}, initialize::zeros()); }
const std::vector<InputSpec> one_number = {{"x", DType::F32, {batch}}};
NamedArrays numbers(std::vector<double> values) {
  Literal x(DType::F32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) x.set(static_cast<int64_t>(i), values[i]);
  return {{"x", x}};
}
const Literal& state_of(const NamedArrays& state, const std::string& name) {
  const Literal* found = find_array(state, name);
  EXPECT_NE(found, nullptr) << name;
  static const Literal none = Literal::scalar(DType::F32, -12345);
  return found ? *found : none;
}
double number(const Trainer& trainer, const std::string& name) { return state_of(trainer.state(), name).at(0); }

TEST(LossScale, BackwardAndDivisionTakeOneScale) {
  for (const LossScale& scale : {fast(), LossScale{.kind = LossScale::Kind::Dynamic, .start = 0.5, .growth = 8, .interval = 2},
                                 LossScale{.kind = LossScale::Kind::Constant, .start = 1024}}) {
    for (const std::optional<double>& clip : {std::optional<double>(), std::optional<double>(1.0)}) {
      Trainer trainer(train_step(one_number, linear_loss, sgd(1), {.clip_norm = clip, .loss_scale = scale}), testing::on_reference());
      for (int64_t step = 0; step < 4; ++step) {
        const StepResult result = trainer.step(numbers({0.25, 0.25}));
        EXPECT_FALSE(result.skipped);
        if (scale.interval == 1) {
          EXPECT_EQ(result.loss_scale, 8 * std::pow(2, step));
        }
        EXPECT_EQ(result.loss, -0.25 * 0.25 * static_cast<double>(step)) << "the loss is that of the model";
      }
      EXPECT_EQ(number(trainer, "w"), -1.0);
    }
  }
  Trainer trainer(train_step(one_number, linear_loss, sgd(1), {.loss_scale = fast()}), testing::on_reference());
  for (int i = 0; i < 4; ++i) trainer.step(numbers({0.25}));
  EXPECT_EQ(number(trainer, "optimizer.loss_scale"), 128);
  EXPECT_EQ(number(trainer, "optimizer.applied_steps"), 4);
}

TEST(LossScale, ClippingSeesUnscaledGradients) {
  Trainer plain(train_step(one_number, linear_loss, sgd(1), {.clip_norm = 0.125}), testing::on_reference());
  Trainer scaled(train_step(one_number, linear_loss, sgd(1), {.clip_norm = 0.125, .loss_scale = fast()}), testing::on_reference());
  for (int i = 0; i < 4; ++i) {
    const StepResult a = plain.step(numbers({0.25})), b = scaled.step(numbers({0.25}));
    EXPECT_EQ(a.gradient_norm, 0.25);
    EXPECT_EQ(b.gradient_norm, 0.25);
  }
  EXPECT_EQ(number(scaled, "w"), number(plain, "w"));
  EXPECT_NEAR(number(scaled, "w"), -0.5, 1e-5);
}

TEST(LossScale, AStepThatOverflowsIsSkippedAndHalvesTheScale) {
  Trainer trainer(train_step(one_number, linear_loss, sgd(1), {.clip_norm = 1.0, .loss_scale = fast()}), testing::on_reference());
  EXPECT_EQ(trainer.step(numbers({0.25})).loss_scale, 8);
  for (const double bad : {infinity, std::nan(""), -infinity}) {
    const double before = number(trainer, "optimizer.loss_scale");
    const StepResult skipped = trainer.step(numbers({0.25, bad}));
    EXPECT_TRUE(skipped.skipped);
    EXPECT_EQ(skipped.loss_scale, before);
    EXPECT_EQ(number(trainer, "optimizer.loss_scale"), before / 2);
    EXPECT_EQ(number(trainer, "w"), -0.25);
  }
  EXPECT_EQ(trainer.steps_done(), 4) << "a skipped step counts for schedule, data and dropout";
  EXPECT_EQ(number(trainer, "optimizer.applied_steps"), 1);
  EXPECT_FALSE(trainer.step(numbers({0.25})).skipped);
  EXPECT_EQ(number(trainer, "w"), -0.5);
  EXPECT_EQ(number(trainer, "optimizer.loss_scale"), 4);
}

TEST(LossScale, GrowsAfterGoodStepsInARow) {
  LossScale scale = fast();
  scale.interval = 3;
  Trainer trainer(train_step(one_number, linear_loss, sgd(1), {.loss_scale = scale}), testing::on_reference());
  std::vector<double> scales;
  for (const bool good : {true, true, false, true, true, true, true}) {
    trainer.step(numbers({good ? 0.25 : infinity}));
    scales.push_back(number(trainer, "optimizer.loss_scale"));
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 4, 4, 4, 8, 8}));
}

/// A scale that would become infinite stays; one that overflows the scaled gradient is found out.
TEST(LossScale, EndsOfTheRange) {
  LossScale scale = fast();
  scale.start = 0x1p126;
  Trainer trainer(train_step(one_number, linear_loss, sgd(1), {.loss_scale = scale}), testing::on_reference());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(trainer.step(numbers({0.0009765625})).skipped);
  EXPECT_EQ(number(trainer, "optimizer.loss_scale"), 0x1p127);
  EXPECT_TRUE(trainer.step(numbers({4})).skipped);
  EXPECT_FALSE(trainer.step(numbers({0.25})).skipped);
}

TEST(LossScale, EndlessSkippingIsAnError) {
  Trainer trainer(train_step(one_number, linear_loss, sgd(1), {.loss_scale = {.kind = LossScale::Kind::Constant, .start = 4}}), testing::on_reference());
  for (int i = 0; i < 63; ++i) ASSERT_TRUE(trainer.step(numbers({infinity})).skipped);
  const std::string message = testing::error_of([&] { trainer.step(numbers({infinity})); });
  EXPECT_NE(message.find("step 63: 64 steps in a row were skipped"), std::string::npos) << message;
  EXPECT_EQ(trainer.steps_done(), 63);
  trainer.step(numbers({1}));
  EXPECT_EQ(number(trainer, "w"), -1);
  EXPECT_TRUE(trainer.step(numbers({infinity})).skipped) << "the count starts again";
}

TEST(LossScale, WithoutItSuchAStepIsAnError) {
  Trainer trainer(train_step(one_number, linear_loss, sgd(1), {.clip_norm = 1.0}), testing::on_reference());
  EXPECT_NE(testing::error_of([&] { trainer.step(numbers({infinity})); }).find("is not finite"), std::string::npos);
  EXPECT_EQ(find_array(trainer.state(), "optimizer.applied_steps"), nullptr);
}

TEST(LossScale, ValuesOutsideTheirRange) {
  const auto refused = [](LossScale scale) { return testing::error_of([&] { train_step(one_number, linear_loss, sgd(1), {.loss_scale = scale}); }); };
  EXPECT_NE(refused({.start = 0}).find("the scale is 0"), std::string::npos);
  EXPECT_NE(refused({.start = infinity}).find("the scale is inf"), std::string::npos);
  EXPECT_NE(refused({.growth = 0.5}).find("growth is 0.5"), std::string::npos);
  EXPECT_NE(refused({.backoff = 1}).find("backoff is 1"), std::string::npos);
  EXPECT_NE(refused({.interval = 0}).find("interval is 0"), std::string::npos);
}

// ---- whole models

const std::vector<InputSpec> rows = {{"x", DType::F32, {batch, 3}}, {"label", DType::I32, {batch}}};
Loss model(Scope s, Inputs in) {
  const Value x = batch_norm(s / "bn", tanh(linear(s / "a", in["x"], 4)));
  return cross_entropy(linear(s / "b", x, 3), in["label"]);
}
NamedArrays batch_of(int64_t count, uint64_t start, double bad = 0, int64_t bad_row = 0) {
  Literal x(DType::F32, {count, 3}), label(DType::I32, {count});
  for (int64_t i = 0; i < x.count(); ++i) {
    const double turn = static_cast<double>(i + 1 + static_cast<int64_t>(start)) * 0.6180339887498949;
    x.set(i, 2 * (turn - std::floor(turn)) - 1);
  }
  for (int64_t i = 0; i < count; ++i) label.set_integer(i, (i + static_cast<int64_t>(start)) % 3);
  if (bad != 0) x.set(bad_row * 3 + 1, bad);
  return {{"x", x}, {"label", label}};
}

Optimizer with_average(Optimizer::Kind kind) {
  Optimizer optimizer;
  optimizer.kind = kind;
  optimizer.rate = 0.05;
  optimizer.ema_decay = 0.5;
  optimizer.weight_decay = 0.1;
  if (kind == Optimizer::Kind::Sgd) optimizer.momentum = 0.9, optimizer.dampening = 0.5;
  if (kind == Optimizer::Kind::Adagrad) optimizer.rate_decay = 0.1;
  return optimizer;
}

/// Without the scale's own state, and without buffers: those are the forward's.
NamedArrays moved_by_updates(const Trainer& trainer) {
  NamedArrays found;
  for (const auto& [name, value] : trainer.state())
    if (!name.starts_with("optimizer.") && name.find("running_") == std::string::npos && name.find("num_batches") == std::string::npos)
      found.emplace_back(name, value);
  return found;
}

class LossScaleOf : public ::testing::TestWithParam<Optimizer::Kind> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, LossScaleOf,
                         ::testing::Values(Optimizer::Kind::Sgd, Optimizer::Kind::Adam, Optimizer::Kind::AdamW, Optimizer::Kind::Lion, Optimizer::Kind::Rmsprop,
                                           Optimizer::Kind::Adagrad, Optimizer::Kind::Adafactor),
                         [](const auto& info) { return "Kind" + std::to_string(static_cast<int>(info.param)); });

/// Powers of two change no bit, and skipped steps (the first among them) leave no trace: not in moments, their corrections, decay or averages.
TEST_P(LossScaleOf, EqualsTrainingWithoutItAndWithoutTheBadBatches) {
  for (const int64_t micro_batches : {1, 3}) {
    Trainer plain(train_step(rows, model, with_average(GetParam()), {.clip_norm = 0.5, .micro_batches = micro_batches}), testing::on_reference());
    Trainer scaled(train_step(rows, model, with_average(GetParam()), {.clip_norm = 0.5, .micro_batches = micro_batches, .loss_scale = fast()}), testing::on_reference());
    for (int64_t step = 0; step < 6; ++step) {
      const bool bad = step == 0 || step == 2 || step == 3;
      const StepResult result = scaled.step(batch_of(6, static_cast<uint64_t>(step) * 31, bad ? std::nan("") : 0, 4));
      EXPECT_EQ(result.skipped, bad);
      if (bad) continue;
      EXPECT_EQ(plain.step(batch_of(6, static_cast<uint64_t>(step) * 31)).loss, result.loss);
      EXPECT_TRUE(moved_by_updates(scaled) == moved_by_updates(plain)) << step;
    }
  }
}

TEST(LossScale, BuffersFollowTheForwardAsInPyTorch) {
  const auto steep = [](Scope s, Inputs in) {
    Loss loss = model(s, in);
    loss.numerator = loss.numerator * 1000.0;
    return loss;
  };
  Trainer trainer(train_step(rows, steep, sgd(0.1), {.loss_scale = {.kind = LossScale::Kind::Dynamic, .start = 0x1p126}}), testing::on_reference());
  const NamedArrays before = trainer.state();
  // The batch is good, the scale too large.
  EXPECT_TRUE(trainer.step(batch_of(6, 5)).skipped);
  const NamedArrays after = trainer.state();
  EXPECT_EQ(state_of(after, "bn.num_batches_tracked").at(0), 1);
  EXPECT_FALSE(state_of(after, "bn.running_mean") == state_of(before, "bn.running_mean"));
  EXPECT_TRUE(state_of(after, "a.weight") == state_of(before, "a.weight"));
}

class LossScaleOn : public ::testing::TestWithParam<std::tuple<const char*, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, LossScaleOn, ::testing::Combine(::testing::Values("", "data=2", "data=3"), ::testing::Values(1, 2)), [](const auto& info) {
  const std::string mesh = std::get<0>(info.param);
  return (mesh.empty() ? "One" : "Data" + mesh.substr(5)) + "Slices" + std::to_string(std::get<1>(info.param));
});

/// One row of one rank's share of one micro-batch is bad: all ranks skip.
TEST_P(LossScaleOn, OneDecisionForAllRanksAndMicroBatches) {
  const auto& [mesh, micro_batches] = GetParam();
  const StepOptions options{.clip_norm = 0.5, .micro_batches = micro_batches, .loss_scale = fast()};
  Trainer one(train_step(rows, model, with_average(Optimizer::Kind::AdamW), options), testing::on_reference()),
      many(train_step(rows, model, with_average(Optimizer::Kind::AdamW), options), testing::on_reference({.mesh = mesh}));
  for (int64_t step = 0; step < 5; ++step) {
    const bool bad = step == 1 || step == 3;
    const NamedArrays batch_values = batch_of(12, static_cast<uint64_t>(step) * 31, bad ? infinity : 0, step == 1 ? 11 : 0);
    const StepResult a = one.step(batch_values), b = many.step(batch_values);
    EXPECT_EQ(a.skipped, bad);
    EXPECT_EQ(b.skipped, bad);
    EXPECT_EQ(a.loss_scale, b.loss_scale) << step;
  }
  const NamedArrays wanted = moved_by_updates(one), found = moved_by_updates(many);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    for (int64_t k = 0; k < wanted[i].second.count(); ++k) EXPECT_NEAR(found[i].second.at(k), wanted[i].second.at(k), 2e-5) << wanted[i].first;
}

/// A gradient that is infinite in the part of one rank alone.
TEST(LossScale, ShardedParametersDecideTogether) {
  const auto by_rows = [](Scope s, Inputs in) -> Loss { return mean(in["x"] * s.parameter("w", {4}, initialize::zeros())); };
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 4}}};
  TrainerOptions options{.mesh = "data=2"};
  options.shardings = {{"w", RoleKind::Parameter, parse_sharding("{data}")}};
  Trainer trainer(train_step(inputs, by_rows, sgd(1), {.loss_scale = fast()}), testing::on_reference(options));
  Literal x(DType::F32, {2, 4});
  for (int64_t i = 0; i < 8; ++i) x.set(i, 1);
  EXPECT_FALSE(trainer.step({{"x", x}}).skipped);
  const Literal before = state_of(trainer.state(), "w");
  EXPECT_EQ(before.at(0), -0.25);
  x.set(3, infinity);
  EXPECT_TRUE(trainer.step({{"x", x}}).skipped);
  EXPECT_TRUE(state_of(trainer.state(), "w") == before);
  EXPECT_EQ(number(trainer, "optimizer.loss_scale"), 8);
}

TEST(LossScale, ResumesBitByBit) {
  const auto build = [] {
    return train_step(rows, model, with_average(Optimizer::Kind::Adam),
                      {.clip_norm = 0.5, .loss_scale = {.kind = LossScale::Kind::Dynamic, .start = 8, .interval = 2}});
  };
  const auto batch_at = [](int64_t step) { return batch_of(6, static_cast<uint64_t>(step) * 31, step == 1 || step == 4 ? infinity : 0); };
  Trainer whole(build(), testing::on_reference()), first(build(), testing::on_reference()), second(build(), testing::on_reference());
  for (int64_t step = 0; step < 7; ++step) whole.step(batch_at(step));
  for (int64_t step = 0; step < 3; ++step) first.step(batch_at(step));
  second.load_state(first.state(), first.steps_done());
  for (int64_t step = 3; step < 7; ++step) second.step(batch_at(step));
  // NaN in running statistics after an infinite batch is as in the whole run, but equals nothing.
  EXPECT_TRUE(moved_by_updates(second) == moved_by_updates(whole));
  for (const char* name : {"optimizer.loss_scale", "optimizer.good_steps", "optimizer.applied_steps"})
    EXPECT_EQ(number(second, name), number(whole, name)) << name;
}

TEST(LossScale, AutomaticIsDynamicWithF16Alone) {
  const auto has_scale = [](std::optional<DType> dtype, LossScale::Kind kind) {
    CaptureOptions options;
    options.autocast.dtype = dtype;
    const Module module = train_step(rows, model, sgd(1), {.loss_scale = {.kind = kind}}, options);
    return find_input(module.graph(module.entry("step")), RoleKind::OptimizerState, "optimizer.loss_scale").has_value();
  };
  using Kind = LossScale::Kind;
  EXPECT_TRUE(has_scale(DType::F16, Kind::Automatic));
  EXPECT_FALSE(has_scale(DType::F16, Kind::None));
  EXPECT_FALSE(has_scale(DType::BF16, Kind::Automatic));
  EXPECT_TRUE(has_scale(DType::BF16, Kind::Dynamic));
  EXPECT_FALSE(has_scale(std::nullopt, Kind::Automatic));
}

/// What loss scaling is for: a gradient below the smallest number of f16.
TEST(LossScale, KeepsSmallGradientsOfF16) {
  const auto tiny = [](Scope s, Inputs in) -> Loss {
    return sum(convert(linear(in["x"], s.parameter("w", {1, 1}, initialize::zeros())), DType::F32)) * 0x1p-26;
  };
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 1}}};
  CaptureOptions options;
  options.autocast.dtype = DType::F16;
  const auto after = [&](LossScale::Kind kind) {
    Trainer trainer(train_step(inputs, tiny, sgd(1), {.loss_scale = {.kind = kind}}, options), testing::on_reference());
    trainer.step({{"x", Literal::full(DType::F32, {1, 1}, 1)}});
    return number(trainer, "w");
  };
  EXPECT_EQ(after(LossScale::Kind::Automatic), -0x1p-26);
  EXPECT_EQ(after(LossScale::Kind::None), 0);
}

}  // namespace loss_scale_test
}  // namespace stepgraph
