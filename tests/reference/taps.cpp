// SPDX-License-Identifier: Apache-2.0
// Values of a program as results besides: the oracle's, under any back end, and no other bit changes.
#include <gtest/gtest.h>

#include <algorithm>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/compile/passes/tap.h"
#include "stepgraph/train/trainer.h"
#include "tests/reference/step_programs.h"
#include "tests/support/close.h"
#include "tests/support/error_of.h"

namespace stepgraph {
namespace taps_test {

testing::Program program(const std::string& model) {
  for (const testing::ZooModel& zoo : testing::zoo_models())
    if (zoo.name == model) return testing::zoo_program(zoo, DType::F32, 1, "");
  throw UserError("no model " + model);
}

RunOutcome run(const testing::Program& program, BackendOptions options, std::vector<std::string> taps) {
  options.taps = std::move(taps);
  return run_entry(program.local, "step", program.inputs, options, program.symbols);
}

TEST(Taps, ChangeNoOtherBit) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  for (const char* model : {"gpt", "lstm", "convnet"}) {
    const testing::Program step = program(model);
    for (const BackendOptions& options : {BackendOptions{.backend = Backend::Full, .threads = 2, .poison = true}, BackendOptions{.backend = Backend::Eager, .threads = 1},
                                          BackendOptions{.backend = Backend::Reference}}) {
      const RunOutcome plain = run(step, options, {}), tapped = run(step, options, {"*"});
      EXPECT_TRUE(plain.taps.empty());
      EXPECT_GT(tapped.taps.size(), 20u);
      testing::expect_same_outputs(tapped.outputs, plain.outputs, 0, step.local, std::string(model) + " " + std::string(name(options.backend)));
    }
  }
}

TEST(Taps, AreTheOraclesValues) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const testing::Program step = program("gpt");
  // Of which no pass makes one more or less: the numbers in names are the same.
  const std::vector<std::string> patterns = {"forward/transformer.h.?.attn/attention", "forward/transformer.h.*/matmul"};
  const RunOutcome wanted = run(step, {.backend = Backend::Reference}, patterns);
  const RunOutcome found = run(step, {.backend = Backend::Full, .threads = 2}, patterns);
  size_t common = 0, attentions = 0;
  for (const auto& [name, value] : wanted.taps) {
    const auto other = found.taps.find(name);
    ASSERT_TRUE(other != found.taps.end()) << name;
    ++common, attentions += name.ends_with("/attention");
    EXPECT_EQ(testing::compare_values(other->second, value, 1e-4), "") << name;
  }
  EXPECT_GT(common, 5u);
  EXPECT_EQ(attentions, 2u);
}

TEST(Taps, NamesAreUniqueAndInOrder) {
  const Module flat = flatten_for_kernels(program("gpt").local);
  const std::vector<NamedValue> values = value_names(flat.graph(flat.entry("step")));
  std::vector<std::string> names;
  for (const NamedValue& value : values) names.push_back(value.name);
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end(), [](const NamedValue& a, const NamedValue& b) { return a.node < b.node; }));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Taps, WhatMatchesNothingIsAnErrorWithNearNames) {
  const testing::Program step = program("gpt");
  const std::string error = testing::error_of([&] { run(step, {.backend = Backend::Reference}, {"forward/transformer.h.0.attn/atention"}); });
  EXPECT_NE(error.find("no value of the program is named 'forward/transformer.h.0.attn/atention'; nearest are forward/transformer.h.0.attn/attention"), std::string::npos) << error;
  // One pattern that matches does not excuse another one.
  EXPECT_NE(testing::error_of([&] { run(step, {.backend = Backend::Reference}, {"*", "sideways/*"}); }).find("'sideways/*'"), std::string::npos);
}

TEST(Taps, OfTheTrainersStep) {
  const testing::Program step = program("mlp");
  ModelDefinition definition = define_model("mlp", {{"size", "3"}, {"hidden", "8"}, {"classes", "4"}});
  NamedArrays batch;
  for (const InputSpec& input : definition.inputs) {
    Sizes sizes;
    for (const Dim& dim : input.shape) sizes.push_back(dim.is_constant() ? dim.constant() : 4);
    batch.emplace_back(input.name, Literal(input.dtype, sizes));
  }
  const Module module = train_step(capture(definition.inputs, definition.function, definition.capture), Optimizer{});
  for (const char* mesh : {"", "data=2"}) {
    Trainer trainer(module, {.mesh = mesh, .backend = {.backend = Backend::Reference, .taps = {"forward/*"}}});
    const StepResult result = trainer.step(batch);
    EXPECT_FALSE(result.taps.empty());
    for (const auto& [name, value] : result.taps) EXPECT_EQ(name.find('@') != std::string::npos, *mesh != 0) << name;
    EXPECT_EQ(trainer.eval_batch(batch).outputs.count("forward"), 0u);
  }
}

}  // namespace taps_test
}  // namespace stepgraph
