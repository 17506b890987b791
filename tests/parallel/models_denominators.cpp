// SPDX-License-Identifier: Apache-2.0
// What a loss is divided by, and the one norm that clips: the same for every way to cut the same rows into micro-batches and ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/trainer.h"
#include "tests/parallel/mesh_check.h"
#include "tests/support/on_reference.h"

namespace stepgraph {
namespace models_denominators_test {

const Dim batch = Dim::symbol("batch");

Optimizer plain_sgd(double rate = 1) {
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Sgd;
  optimizer.rate = rate;
  return optimizer;
}

/// A scalar weight; each token adds its own gradient when it is valid, and the loss is per valid token.
Loss token_loss(Scope s, Inputs in) {
  const Value w = s.parameter("w", {}, initialize::zeros());
  const Value valid = convert(in["valid"], DType::F32);
  return {sum(in["gradient"] * valid) * w, sum(valid)};
}
std::vector<InputSpec> token_inputs(int64_t tokens) { return {{"gradient", DType::F32, {batch, tokens}}, {"valid", DType::Bool, {batch, tokens}}}; }

Trainer token_trainer(int64_t tokens, int64_t micro_batches, const std::string& mesh) {
  return Trainer(train_step(token_inputs(tokens), token_loss, plain_sgd(), {.clip_norm = std::nullopt, .micro_batches = micro_batches}), testing::on_reference({.mesh = mesh}));
}
double weight(const Trainer& trainer) { return find_array(trainer.state(), "w")->at(0); }

/// One row for each pair (valid tokens, gradient of each).
NamedArrays token_rows(const std::vector<std::pair<int, double>>& rows, int64_t tokens) {
  const auto count = static_cast<int64_t>(rows.size());
  Literal gradient(DType::F32, {count, tokens}), valid(DType::Bool, {count, tokens});
  for (int64_t r = 0; r < count; ++r)
    for (int64_t t = 0; t < tokens; ++t) {
      gradient.set(r * tokens + t, rows[static_cast<size_t>(r)].second);
      valid.set_integer(r * tokens + t, t < rows[static_cast<size_t>(r)].first ? 1 : 0);
    }
  return {{"gradient", gradient}, {"valid", valid}};
}

// 2 ranks x 2 micro-batches with 1, 7, 3, 1 valid tokens: a mean of means is 3, a mean over ranks 1.5.
TEST(Denominators, OneSumOverOneCount) {
  std::vector<std::pair<int, double>> rows = {{1, 8}, {3, 2}, {7, 0}, {1, 2}};
  std::sort(rows.begin(), rows.end());
  do {
    for (int64_t micro_batches : {1, 2, 4})
      for (const char* mesh : {"", "data=2", "data=3", "data=4"}) {
        Trainer trainer = token_trainer(7, micro_batches, mesh);
        trainer.step(token_rows(rows, 7));
        EXPECT_FLOAT_EQ(static_cast<float>(-weight(trainer)), 1.3333333F) << micro_batches << " on " << mesh;
      }
  } while (std::next_permutation(rows.begin(), rows.end()) && rows[0].first < 3);
}

TEST(Denominators, SlicesWithoutAValidToken) {
  for (int64_t micro_batches : {1, 2, 4})
    for (const char* mesh : {"", "data=2", "data=4"}) {
      Trainer trainer = token_trainer(7, micro_batches, mesh);
      trainer.step(token_rows({{0, 5}, {0, 9}, {2, 3}, {0, 1}}, 7));
      EXPECT_EQ(-weight(trainer), 3) << micro_batches << " on " << mesh;
      // None at all: nothing is learned, and nothing is NaN.
      const StepResult result = trainer.step(token_rows({{0, 5}, {0, 9}, {0, 3}, {0, 1}}, 7));
      EXPECT_EQ(result.loss, 0);
      EXPECT_EQ(-weight(trainer), 3);
    }
}

TEST(Denominators, CrossEntropyWithIgnoredTargets) {
  const ModelFunction model = [](Scope s, Inputs in) { return cross_entropy(linear(s / "fc", in["x"], 4), in["label"]); };
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 3}}, {"label", DType::I64, {batch}}};
  const Literal x = numbers(DType::F32, {12, 3});
  Literal label = indices({12}, 4);
  for (int64_t i : {0, 1, 2, 4, 9, 10, 11}) label.set_integer(i, -100);  // a quarter of the batch has no target
  double wanted = 0;
  Literal wanted_weight;
  for (int64_t micro_batches : {1, 2, 4})
    for (const char* mesh : {"", "data=2", "data=4"}) {
      Trainer trainer(train_step(inputs, model, plain_sgd(0.5), {.clip_norm = std::nullopt, .micro_batches = micro_batches}), testing::on_reference({.mesh = mesh}));
      const StepResult result = trainer.step({{"x", x}, {"label", label}});
      EXPECT_EQ(result.loss_denominator, 5);
      const Literal found = *find_array(trainer.state(), "fc.weight");
      if (wanted == 0) wanted = result.loss, wanted_weight = found;
      EXPECT_NEAR(result.loss, wanted, 1e-6);
      expect_close({found}, {wanted_weight}, 1e-6, "fc.weight");
    }
}

/// The loss of one row is g * w, and a batch's is the mean over its rows.
Trainer mean_trainer(int64_t micro_batches, const std::string& mesh) {
  const ModelFunction model = [](Scope s, Inputs in) { return mean(in["g"] * s.parameter("w", {}, initialize::zeros())); };
  return Trainer(train_step({{"g", DType::F32, {batch}}}, model, plain_sgd(), {.clip_norm = std::nullopt, .micro_batches = micro_batches}), testing::on_reference({.mesh = mesh}));
}

// 2 ranks x 3 micro-batches, gradients 1, 2, 3 and 10, 20, 30: every one counts, once.
TEST(Denominators, EveryMicroBatchOfEveryRankCounts) {
  for (int64_t micro_batches : {1, 2, 3, 6})
    for (const char* mesh : {"", "data=2", "data=3", "data=4"}) {
      Trainer trainer = mean_trainer(micro_batches, mesh);
      for (int step = 1; step <= 2; ++step) {
        trainer.step({{"g", Literal::from_doubles(DType::F32, {6}, std::vector<double>{1, 10, 2, 20, 3, 30})}});
        EXPECT_FLOAT_EQ(static_cast<float>(-weight(trainer)), static_cast<float>(11 * step)) << micro_batches << " on " << mesh;
      }
    }
}

TEST(Denominators, AnySplitOfOnesIsOne) {
  for (int64_t micro_batches : {1, 2, 3, 4, 6, 12})
    for (const char* mesh : {"", "data=2", "data=3", "data=4"}) {
      Trainer trainer = mean_trainer(micro_batches, mesh);
      trainer.step({{"g", Literal::full(DType::F32, {12}, 1)}});
      EXPECT_FLOAT_EQ(static_cast<float>(-weight(trainer)), 1) << micro_batches << " on " << mesh;
    }
}

/// Gradient `g` of a parameter of its own dtype.
Module product_step(DType dtype, std::optional<double> clip_norm, const std::vector<double>& g, int64_t micro_batches = 1) {
  const ModelFunction model = [=](Scope s, Inputs in) {
    const Value p = s.parameter("p", {static_cast<int64_t>(g.size())}, initialize::zeros(), dtype);
    const Value factor = constant(s.builder(), Literal::from_doubles(dtype, {static_cast<int64_t>(g.size())}, g));
    return Loss(convert(sum(p * factor), DType::F32) + 0.0 * sum(in["x"]));
  };
  return train_step({{"x", DType::F32, {batch}}}, model, plain_sgd(), {.clip_norm = clip_norm, .micro_batches = micro_batches});
}
NamedArrays zeros_batch(int64_t rows) { return {{"x", Literal(DType::F32, {rows})}}; }

// Squares of f16 gradients overflow f16: the norm is taken in f32.
TEST(Clipping, NormOfHalfPrecisionGradients) {
  for (int64_t micro_batches : {1, 2})
    for (const char* mesh : {"", "data=2"}) {
      Trainer trainer(product_step(DType::F16, 1.0, {240, 320}, micro_batches), testing::on_reference({.mesh = mesh}));
      EXPECT_EQ(trainer.step(zeros_batch(4)).gradient_norm, 400);
      const Literal p = *find_array(trainer.state(), "p");
      EXPECT_NEAR(-p.at(0), 0.60009766, 1e-8);
      EXPECT_NEAR(-p.at(1), 0.79980469, 1e-8);
    }
}

TEST(Clipping, GradientsBelowTheNormKeepEveryBit) {
  for (DType dtype : {DType::F64, DType::F32}) {
    Trainer trainer(product_step(dtype, 10.0, {0.1, -1.0 / 3}), testing::on_reference());
    trainer.step(zeros_batch(2));
    EXPECT_EQ(find_array(trainer.state(), "p")->at(1), Literal::scalar(dtype, 1.0 / 3).at(0)) << name(dtype);
  }
}

// An infinite gradient with a finite loss: an error that names the op, nothing is changed, and the trainer goes on.
TEST(Clipping, AnInfiniteGradientStopsTheStep) {
  const ModelFunction model = [](Scope s, Inputs in) { return sum(sqrt(in["x"] * s.parameter("p", {}, initialize::ones()))) / 4.0; };
  for (std::optional<double> clip_norm : {std::optional<double>(1.0), std::optional<double>()})
    for (int64_t micro_batches : {1, 2})
      for (const char* mesh : {"", "data=2"}) {
        const Literal good = Literal::full(DType::F32, {4}, 1);
        Literal bad = good;
        bad.set(2, -0.0);
        Trainer trainer(train_step({{"x", DType::F32, {batch}}}, model, plain_sgd(0.5), {.clip_norm = clip_norm, .micro_batches = micro_batches}), testing::on_reference({.mesh = mesh}));
        trainer.step({{"x", good}});
        const NamedArrays before = trainer.state();
        try {
          trainer.step({{"x", bad}});
          FAIL() << "no error";
        } catch (const UserError& error) {
          const std::string message = error.what();
          EXPECT_EQ(message.rfind("step 1: ", 0), 0U) << message;
          EXPECT_NE(message.find("is not finite"), std::string::npos) << message;
          EXPECT_NE(message.find("models_denominators.cpp:"), std::string::npos) << message;
        }
        EXPECT_TRUE(trainer.state() == before);
        EXPECT_EQ(trainer.steps_done(), 1);
        EXPECT_EQ(trainer.step({{"x", good}}).step, 1);
        EXPECT_FALSE(trainer.state() == before);
      }
}

}  // namespace models_denominators_test
}  // namespace stepgraph
