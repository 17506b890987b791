// SPDX-License-Identifier: Apache-2.0
// Mixed precision over ranks: batches cut differently are rounded differently, so results agree as far as the narrow dtype goes, decisions exactly.
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/compile/compile.h"
#include "stepgraph/train/models/models.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/on_reference.h"

namespace stepgraph {
namespace mixed_precision_test {

struct Task {
  const char* model;
  ModelOptionValues options;
  int64_t classes;
};
const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"gpt", {{"layers", "2"}, {"width", "16"}, {"heads", "2"}, {"context", "6"}, {"vocabulary", "11"}, {"dropout", "0.1"}}, 11},
      {"convnet", {{"width", "4"}, {"classes", "4"}}, 4},
      {"lstm", {{"layers", "1"}, {"width", "8"}, {"context", "5"}, {"vocabulary", "11"}}, 11},
  };
  return all;
}

NamedArrays batch_of(const Task& task, int64_t rows, int64_t step) {
  NamedArrays batch;
  for (const InputSpec& input : define_model(task.model, task.options).inputs) {
    Sizes sizes;
    for (const Dim& dim : input.shape) sizes.push_back(dim.is_constant() ? dim.constant() : rows);
    Literal value(input.dtype, sizes);
    for (int64_t i = 0; i < value.count(); ++i) {
      const double turn = static_cast<double>(i + 1 + step * 7) * 0.6180339887498949;
      if (is_floating(input.dtype))
        value.set(i, 2 * (turn - std::floor(turn)) - 1);
      else
        value.set_integer(i, (i * 5 + step + (input.name == "targets" ? 1 : 0)) % task.classes);
    }
    batch.emplace_back(input.name, value);
  }
  return batch;
}

Module step_of(const Task& task, const Autocast& autocast, int64_t micro_batches) {
  ModelDefinition model = define_model(task.model, task.options);
  model.capture.autocast = autocast;
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Sgd;  // Adam turns the rounding of tiny gradients into whole steps
  optimizer.rate = 0.05;
  return train_step(model.inputs, model.function, optimizer, {.clip_norm = 10.0, .micro_batches = micro_batches}, model.capture);
}

std::vector<double> losses(const Task& task, const Autocast& autocast, const std::string& mesh, int64_t micro_batches) {
  Trainer trainer(step_of(task, autocast, micro_batches), testing::on_reference({.mesh = mesh, .seed = 3}));
  std::vector<double> found;
  for (int64_t step = 0; step < 6; ++step) {
    const StepResult result = trainer.step(batch_of(task, 12, 0));
    EXPECT_FALSE(result.skipped);
    EXPECT_EQ(result.loss_scale.has_value(), autocast.dtype == DType::F16);
    found.push_back(result.loss);
  }
  return found;
}

class MixedPrecision : public ::testing::TestWithParam<std::tuple<DType, Autocast::List>> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, MixedPrecision,
                         ::testing::Combine(::testing::Values(DType::BF16, DType::F16), ::testing::Values(Autocast::List::Cpu, Autocast::List::Cuda)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == DType::BF16 ? "Bf16" : "F16") +
                                  (std::get<1>(info.param) == Autocast::List::Cpu ? "Cpu" : "Cuda");
                         });

TEST_P(MixedPrecision, ModelsLearnAlikeOnAnyNumberOfRanks) {
  const auto& [dtype, list] = GetParam();
  // A few roundings, each of half a step between neighbours at 1; the losses are near 2.
  const double tolerance = dtype == DType::BF16 ? 0x1p-6 : 0x1p-9;
  for (const Task& task : tasks()) {
    const std::vector<double> full = losses(task, {}, "", 1), one = losses(task, {list, dtype}, "", 1);
    EXPECT_LT(one.back(), one.front()) << task.model;
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], full[i], tolerance) << task.model << " against f32, step " << i;
    EXPECT_NE(one, full);
    for (const auto& [mesh, micro_batches] : {std::pair{"data=2", 1}, {"data=3", 1}, {"data=2", 3}}) {
      if (micro_batches > 1 && std::string(task.model) == "convnet") continue;  // batch norm takes the statistics of each micro-batch
      const std::vector<double> many = losses(task, {list, dtype}, mesh, micro_batches);
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_NEAR(many[i], one[i], tolerance) << task.model << " on " << mesh << " x " << micro_batches << ", step " << i;
    }
  }
}

/// f16 that overflows: every rank finds the same steps to skip, and the scale that fits.
TEST(LossScaleOverRanks, TooLargeAScaleIsFoundByAllRanks) {
  for (const Task& task : tasks()) {
    std::vector<std::vector<bool>> skipped;
    std::vector<double> scales;
    for (const char* mesh : {"", "data=2", "data=3"}) {
      ModelDefinition model = define_model(task.model, task.options);
      model.capture.autocast.dtype = DType::F16;
      Trainer trainer(train_step(model.inputs, model.function, {}, {.loss_scale = {.kind = LossScale::Kind::Dynamic, .start = 0x1p30}}, model.capture), testing::on_reference({.mesh = mesh}));
      skipped.emplace_back();
      for (int64_t step = 0; step < 16; ++step) skipped.back().push_back(trainer.step(batch_of(task, 12, step)).skipped);
      scales.push_back(find_array(trainer.state(), "optimizer.loss_scale")->at(0));
      EXPECT_TRUE(skipped.back().front()) << task.model;
      EXPECT_FALSE(skipped.back().back()) << task.model;
    }
    // Near the limit a rounding decides, so that one step may be skipped on one mesh and not on another.
    for (double scale : scales) EXPECT_NEAR(std::log2(scale), std::log2(scales[0]), 1.5) << task.model;
  }
}

}  // namespace mixed_precision_test
}  // namespace stepgraph
