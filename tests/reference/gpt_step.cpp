// SPDX-License-Identifier: Apache-2.0
// The captured step of gpt against the same model written as loops: loss, every gradient, parameters and optimizer state after three AdamW steps.
#include <gtest/gtest.h>

#include "stepgraph/train/models/models.h"
#include "tests/reference/module_runner.h"
#include "tests/reference/plain_gpt.h"

namespace stepgraph::testing {
namespace gpt_step_test {

struct Tolerance {
  double loss, gradient, state;
};

const PlainGptSizes sizes{3, 8, 13, 2, 2, 16};

std::vector<int64_t> tokens_of_step(int64_t step, bool targets) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < sizes.batch * sizes.time; ++i) tokens.push_back((i * 7 + step * 5 + (targets ? i * i + 3 : 0)) % sizes.vocabulary);
  return tokens;
}

Module gpt_step(const Optimizer& optimizer, std::optional<double> clip, DType dtype) {
  Module forward = build_model("gpt", {{"vocabulary", std::to_string(sizes.vocabulary)},
                                       {"context", std::to_string(sizes.time)},
                                       {"layers", std::to_string(sizes.layers)},
                                       {"heads", std::to_string(sizes.heads)},
                                       {"width", std::to_string(sizes.width)}});
  StepOptions options;
  options.clip_norm = clip;
  options.gradients_as_outputs = true;
  return with_floating_dtype(train_step(std::move(forward), optimizer, options), dtype);
}

void compare_three_steps(double clip, DType dtype, double epsilon, const Tolerance& tolerance) {
  Optimizer optimizer;
  optimizer.rate = warmup_linear(0.01, 2, 6);
  optimizer.weight_decay = 0.1;
  optimizer.epsilon = epsilon;
  optimizer.no_decay = {"*.bias", "*.ln_*"};
  ModuleRunner runner(gpt_step(optimizer, clip > 0 ? std::optional<double>(clip) : std::nullopt, dtype), 3);
  NamedNumbers start;
  for (const auto& [name, value] : runner.state)
    if (!name.ends_with(".exp_avg") && !name.ends_with(".exp_avg_sq")) start[name] = value.to_doubles();
  ASSERT_EQ(start.size(), 2U + 12 * 2 + 2);
  PlainGpt plain(sizes, start);

  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<int64_t> tokens = tokens_of_step(step, false), targets = tokens_of_step(step, true);
    const Sizes shape{sizes.batch, sizes.time};
    const EntryOutputs found = runner.step({{"tokens", i32(shape, tokens)}, {"targets", i32(shape, targets)}});
    const double loss = plain.forward_backward(tokens, targets);
    plain.update({learning_rate_at(optimizer.rate, step), 0.1, 0.9, 0.999, epsilon}, clip);
    EXPECT_NEAR(found.loss(), loss, tolerance.loss * loss) << "step " << step;
    ASSERT_EQ(found.gradients.size(), plain.gradients.size());
    if (clip > 0) {
      EXPECT_NEAR(found.gradient_norm.at(0), plain.gradient_norm, tolerance.gradient * plain.gradient_norm);
      EXPECT_GT(plain.gradient_norm, clip) << "the case must clip";
    }
    for (const auto& [name, gradient] : plain.gradients)
      EXPECT_LE(relative_difference(found.gradients.at(name), gradient), tolerance.gradient) << name << " in step " << step;
  }
  for (const auto& [name, value] : plain.parameters) {
    EXPECT_LE(relative_difference(runner.state.at(name), value), tolerance.state) << name;
    EXPECT_LE(relative_difference(runner.state.at(name + ".exp_avg"), plain.first.at(name)), tolerance.state) << name;
    EXPECT_LE(relative_difference(runner.state.at(name + ".exp_avg_sq"), plain.second.at(name)), tolerance.state) << name;
  }
}

// A key's bias moves every score of a row alike, so a third of c_attn.bias has a gradient of exactly zero; Adam's epsilon keeps its rounding noise small.
TEST(GptStep, EqualsPlainLoopsInF64) { compare_three_steps(0, DType::F64, 1e-8, {1e-12, 1e-9, 1e-9}); }
TEST(GptStep, EqualsPlainLoopsInF64Clipped) { compare_three_steps(0.5, DType::F64, 1e-8, {1e-12, 1e-9, 1e-9}); }
TEST(GptStep, EqualsPlainLoopsInF32) { compare_three_steps(0, DType::F32, 1e-3, {1e-6, 3e-5, 3e-5}); }

TEST(GptStep, OneTokenBatches) {
  // Sizes of 1 are where a broadcast may stand in for a dim.
  Module forward = build_model("gpt", {{"vocabulary", "5"}, {"context", "1"}, {"layers", "1"}, {"heads", "1"}, {"width", "2"}});
  ModuleRunner runner(with_floating_dtype(train_step(std::move(forward), Optimizer{}, {}), DType::F64));
  NamedNumbers start;
  for (const auto& [name, value] : runner.state)
    if (name.find(".exp_avg") == std::string::npos) start[name] = value.to_doubles();
  PlainGpt plain({1, 1, 5, 1, 1, 2}, start);
  const double wanted = plain.forward_backward({3}, {4});
  EXPECT_NEAR(runner.step({{"tokens", i32({1, 1}, {3})}, {"targets", i32({1, 1}, {4})}}).loss(), wanted, 1e-12);
}

}  // namespace gpt_step_test
}  // namespace stepgraph::testing
