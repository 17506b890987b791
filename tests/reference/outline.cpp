// SPDX-License-Identifier: Apache-2.0
// Imported models whose repeated blocks became Calls compute what the flat programs compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/passes/expand.h"
#include "stepgraph/compile/passes/outline_repeats.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/imported_model.h"
#include "stepgraph/train/models/models.h"
#include "tests/support/on_reference.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace outline_test {

const std::string samples = std::string(testing::source_root()) + "/tests/samples/";

struct Ran {
  StepResult step;
  int64_t layer_calls = 0, nodes = 0;  // of the entry eval
};

Ran run(const std::string& sample, const std::vector<std::string>& skip, const std::string& mesh) {
  Imported imported = import_pt2(samples + sample + "/model.pt2", {});
  CompileOptions compiled;
  compiled.training = TrainingOptions{};
  compiled.training->step.gradients_as_outputs = true;
  compiled.skip = skip;
  compiled.stop_at = "optimizer";
  Module module = compile(std::move(imported.forward), compiled);
  Ran ran;
  const Graph& eval = module.graph(module.entry("eval"));
  ran.nodes = static_cast<int64_t>(eval.nodes.size());
  for (const Node& node : eval.nodes)
    if (const auto* call = std::get_if<Call>(&node.op)) ran.layer_calls += module.graph(call->graph).composite.empty();
  TrainerOptions trainer_options;
  trainer_options.mesh = mesh;
  trainer_options.skip = skip;
  Trainer trainer(std::move(module), testing::on_reference(trainer_options));
  start_from(trainer, imported.weights);
  NamedArrays batch;
  for (const auto& [name, value] : read_safetensors(samples + sample + "/data.safetensors").arrays)
    if (name.starts_with("input.")) batch.emplace_back(name.substr(6), value);
  ran.step = trainer.step(batch);
  return ran;
}

class Outlined : public ::testing::TestWithParam<const char*> {};

TEST_P(Outlined, ComputesTheSame) {
  for (const char* mesh : {"", "data=2"}) {
    const Ran flat = run(GetParam(), {"outline"}, mesh), calls = run(GetParam(), {}, mesh);
    EXPECT_EQ(flat.layer_calls, 0);
    EXPECT_GE(calls.layer_calls, 2);
    EXPECT_LT(calls.nodes, flat.nodes);
    EXPECT_EQ(flat.step.loss, calls.step.loss);
    ASSERT_EQ(flat.step.gradients.size(), calls.step.gradients.size());
    for (const auto& [name, wanted] : flat.step.gradients) {
      const Literal& found = calls.step.gradients.at(name);
      double largest = 0;
      for (int64_t i = 0; i < wanted.count(); ++i) largest = std::max(largest, std::abs(wanted.at(i)));
      for (int64_t i = 0; i < wanted.count(); ++i) ASSERT_NEAR(found.at(i), wanted.at(i), 2e-7 * largest + 1e-12) << name << " on " << mesh;  // sums in another order
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Samples, Outlined, ::testing::Values("tiny_gpt", "tiny_bert", "tiny_llama", "tiny_vit"), [](const auto& info) { return std::string(info.param); });

double first_loss(Module forward, const std::string& mesh, int64_t micro_batches) {
  StepOptions options;
  options.micro_batches = micro_batches;
  TrainerOptions trainer_options;
  trainer_options.mesh = mesh;
  Trainer trainer(train_step(std::move(forward), Optimizer{}, options), testing::on_reference(trainer_options));
  NamedArrays batch;
  for (const char* name : {"tokens", "targets"}) {
    Literal ids(DType::I64, {4, 8});
    for (int64_t i = 0; i < ids.count(); ++i) ids.set_integer(i, (i * 7 + i / 5) % 16);
    batch.emplace_back(name, std::move(ids));
  }
  trainer.step(batch);
  return trainer.step(batch).loss;
}

/// Dropout in blocks that became one graph: the same draws as before, however the batch is split.
TEST(OutlinedDropout, DrawsByKeyAndNotBySplit) {
  const Module model = build_model("gpt", {{"layers", "4"}, {"width", "16"}, {"heads", "2"}, {"context", "8"}, {"vocabulary", "16"}, {"dropout", "0.25"}});
  const Module flat = inline_calls(model, [](const Graph& graph) { return graph.composite.empty(); });
  const Module calls = outline_repeats(flat);
  EXPECT_LT(calls.graph(calls.entry("forward")).nodes.size() * 2, flat.graph(flat.entry("forward")).nodes.size());
  const double loss = first_loss(calls, "", 1);
  EXPECT_EQ(loss, first_loss(flat, "", 1));
  EXPECT_NEAR(loss, first_loss(calls, "data=2", 1), 1e-6);
  EXPECT_NEAR(loss, first_loss(calls, "", 2), 1e-6);
  EXPECT_NEAR(loss, first_loss(calls, "data=2", 2), 1e-6);
}

}  // namespace outline_test
}  // namespace stepgraph
