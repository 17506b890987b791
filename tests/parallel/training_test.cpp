// SPDX-License-Identifier: Apache-2.0
// Whole training steps (forward, backward, accumulation, clipping, optimizer, dropout, batch norm) on one to four ranks, and how long they take to compile.
#include <gtest/gtest.h>

#include <ctime>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/reference/shards.h"
#include "stepgraph/train/models/models.h"
#include "tests/parallel/mesh_check.h"

namespace stepgraph {
namespace training_test {

Module only_entry(Module module, const std::string& entry) {
  module.entries = {{entry, module.entry(entry)}};
  return prune_graphs(std::move(module));
}

/// Values for the inputs of `step`: parameters small, second moments not negative, labels in range.
std::vector<Literal> step_inputs(const Module& step, const SymbolValues& symbols, int64_t classes) {
  const Graph& graph = step.graph(step.entries[0].graph);
  std::vector<Literal> inputs;
  for (const GraphInput& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    Sizes sizes;
    for (const Dim& dim : type.shape) sizes.push_back(evaluate(dim, symbols));
    const int64_t start = 1000 * static_cast<int64_t>(inputs.size());
    if (input.role.kind == RoleKind::Seed)
      inputs.push_back(Literal::integer(type.dtype, 11));
    else if (input.role.kind == RoleKind::Step)
      inputs.push_back(Literal::integer(type.dtype, 3));
    else if (is_integer(type.dtype) && is_state(input.role.kind))
      inputs.push_back(Literal(type.dtype, sizes));
    else if (is_integer(type.dtype))
      inputs.push_back(indices(sizes, classes, start).converted(type.dtype));
    else {
      Literal value = numbers(type.dtype, sizes, start);
      const bool positive = input.role.kind == RoleKind::OptimizerState || input.role.kind == RoleKind::Buffer;
      for (int64_t i = 0; i < value.count(); ++i)
        value.set(i, positive ? 0.5 + 0.1 * value.at(i) : input.role.kind == RoleKind::Parameter ? 0.3 * value.at(i) : value.at(i));
      inputs.push_back(std::move(value));
    }
  }
  return inputs;
}

struct Task {
  std::string name;
  std::vector<InputSpec> inputs;
  ModelFunction model;
  int64_t classes;
};
const Dim batch = Dim::symbol("batch");

Task dropout_mlp() {
  return {"mlp with dropout",
          {{"x", DType::F32, {batch, 5}}, {"label", DType::I64, {batch}}},
          [](Scope s, Inputs in) {
            Value x = relu(linear(s / "a", in["x"], 8));
            x = dropout(s, x, 0.3);
            return cross_entropy(linear(s / "b", x, 4), in["label"]);
          },
          4};
}
Task batch_norm_net() {
  return {"convolution with batch norm",
          {{"x", DType::F32, {batch, 1, 5, 5}}, {"label", DType::I64, {batch}}},
          [](Scope s, Inputs in) {
            ConvOptions padded;
            padded.padding = {1};
            Value x = relu(batch_norm(s / "bn", conv(s / "conv", in["x"], 3, padded)));
            x = max_pool(x, {.size = {2, 2}, .strides = {}, .padding = {}, .dilation = {}});
            return cross_entropy(linear(s / "fc", flatten(x, 1, 3), 4), in["label"]);
          },
          4};
}
Task zoo(const std::string& name, const ModelOptionValues& options, int64_t classes) {
  ModelDefinition model = define_model(name, options);
  return {name, model.inputs, model.function, classes};
}

void check_training(const Task& task, const StepOptions& options, int64_t rows, double gradient_tolerance) {
  StepOptions with_gradients = options;
  with_gradients.gradients_as_outputs = true;
  Optimizer optimizer;
  optimizer.weight_decay = 0.1;
  const Module step = only_entry(train_step(task.inputs, task.model, optimizer, with_gradients), "step");
  for (const auto& [dtype, tolerance] : {std::pair{DType::F64, 1e-12}, std::pair{DType::F32, 1e-6}}) {
    const Module module = with_floating_dtype(step, dtype);
    const SymbolValues symbols = {{"batch", rows}};
    expect_ranks_agree(module, step_inputs(module, symbols, task.classes), tolerance * gradient_tolerance,
                       task.name + " of " + std::to_string(rows) + " x " + std::to_string(options.micro_batches), {}, symbols);
  }
}

TEST(Training, PlainClippedAndAccumulated) {
  for (const Task& task : {dropout_mlp(), batch_norm_net()})
    for (int64_t rows : {2, 5, 8})
      for (int64_t micro_batches : {1, 3}) check_training(task, {.clip_norm = 0.5, .micro_batches = micro_batches}, rows, 50);
}

TEST(Training, ModelsOfTheZoo) {
  check_training(zoo("mlp", {}, 10), {}, 5, 50);
  check_training(zoo("gpt", {{"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"context", "6"}, {"vocabulary", "11"}, {"dropout", "0.1"}}, 11),
                 {.clip_norm = 1.0, .micro_batches = 2}, 3, 50);
}

TEST(Training, OptionalPassesChangeNoBit) {
  for (const Task& task : {dropout_mlp(), batch_norm_net()}) {
    const Module step = only_entry(train_step(task.inputs, task.model, {}, {.clip_norm = 0.5, .micro_batches = 2}), "step");
    const SymbolValues symbols = {{"batch", 5}};
    const std::vector<Literal> inputs = step_inputs(step, symbols, task.classes);
    std::vector<std::vector<Literal>> results;
    for (const std::vector<std::string>& skip : std::vector<std::vector<std::string>>{{}, {"simplify"}, {"cse"}, {"simplify", "cse"}}) {
      CompileOptions options;
      options.mesh = parse_mesh("data=2");
      options.skip = skip;
      const Module local = compile(step, options);
      results.push_back(run_on_mesh(local, local.entry("step"), inputs, symbols).outputs);
      EXPECT_EQ(results.back(), results.front()) << task.name;
    }
  }
}

TEST(Training, GradientsAreReducedOnce) {
  const Task task = zoo("gpt", {{"layers", "4"}, {"width", "8"}, {"heads", "2"}, {"context", "6"}, {"vocabulary", "11"}}, 11);
  const Module step = only_entry(train_step(task.inputs, task.model, {}, {.clip_norm = 1.0}), "step");
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  const Module local = compile(step, options);
  const Graph& graph = local.graph(local.entry("step"));
  int64_t parameters = 0, elements = 0;
  for (const GraphInput& input : graph.inputs) {
    if (input.role.kind != RoleKind::Parameter) continue;
    ++parameters;
    elements += element_count(graph.type(input.value).shape).constant();
  }
  const auto sent = collectives(local, local.entry("step"));
  ASSERT_EQ(sent.size(), 1U) << text(sent);
  // Each gradient once, and a few scalars of the loss.
  EXPECT_LE(sent[0].count.constant(), parameters + 6) << text(sent);
  EXPECT_LE(sent[0].bytes.constant(), 4 * elements + 64) << text(sent);
}

TEST(Training, FortyEightLayersCompileInASecond) {
  const std::clock_t begin = std::clock();
  const Task task = zoo("gpt", {{"layers", "48"}, {"width", "64"}, {"heads", "4"}, {"context", "64"}}, 256);
  const Module step = only_entry(train_step(task.inputs, task.model, {}, {.clip_norm = 1.0}), "step");
  const std::clock_t captured = std::clock();
  PassLog log;
  log.clock_us = [] { return static_cast<int64_t>(std::clock()) * 1000000 / CLOCKS_PER_SEC; };
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  const Module local = compile(step, options, &log);
  const auto seconds = [](std::clock_t from, std::clock_t to) { return static_cast<double>(to - from) / CLOCKS_PER_SEC; };
  std::string passes = "capture and differentiate " + std::to_string(seconds(begin, captured)) + " s";
  for (const PassRecord& pass : log.passes)
    passes += ", " + pass.name + " " + std::to_string(pass.elapsed_us) + " us (" + std::to_string(pass.nodes_before) + " -> " +
              std::to_string(pass.nodes_after) + ")";
  RecordProperty("passes", passes);
#ifdef NDEBUG
  EXPECT_LT(seconds(begin, std::clock()), 1.0) << passes;
#endif
  // The block is there once, with its backward.
  EXPECT_LT(local.graphs.size(), 40U);
}

}  // namespace training_test
}  // namespace stepgraph
