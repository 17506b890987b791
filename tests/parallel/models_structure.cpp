// SPDX-License-Identifier: Apache-2.0
// A deep model's module holds its block once, at every stage: forward, evaluation, backward, and the Local program of a rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "stepgraph/compile/compile.h"
#include "stepgraph/train/models/models.h"

namespace stepgraph {
namespace models_structure_test {

struct Counted {
  std::map<std::string, int> graphs;  // by name
  int64_t nodes = 0, matmuls = 0;     // outside the entry
  int64_t entry_nodes = 0, entry_calls = 0, entry_matmuls = 0;
};

Counted count(const Module& module, const std::string& entry) {
  Counted counted;
  for (const Graph& graph : module.graphs) {
    ++counted.graphs[graph.name];
    const bool is_entry = &graph == &module.graph(module.entry(entry));
    for (const Node& node : graph.nodes) {
      const bool is_matmul = std::holds_alternative<MatMul>(node.op);
      ++(is_entry ? counted.entry_nodes : counted.nodes);
      if (is_matmul) ++(is_entry ? counted.entry_matmuls : counted.matmuls);
      counted.entry_calls += is_entry && std::holds_alternative<Call>(node.op) ? 1 : 0;
    }
  }
  return counted;
}

Module gpt_step(int64_t layers, const StepOptions& options, double dropout) {
  const ModelDefinition model = define_model("gpt", {{"layers", std::to_string(layers)}, {"width", "16"}, {"heads", "2"}, {"context", "8"}, {"dropout", std::to_string(dropout)}});
  return train_step(model.inputs, model.function, {}, options, model.capture);
}
Module only(Module module, const std::string& entry) {
  module.entries = {{entry, module.entry(entry)}};
  return prune_graphs(std::move(module));
}

TEST(DeepModels, TheLogicalModuleHoldsTheBlockOnce) {
  for (double dropout : {0.0, 0.1}) {
    const Module module = gpt_step(48, {.clip_norm = 1.0}, dropout);
    std::map<std::string, int> graphs = count(module, "step").graphs;
    EXPECT_EQ(graphs["transformer.h_forward"], 1);
    EXPECT_EQ(graphs["transformer.h_backward"], 1);
    // Evaluation's own: without dropout it is the block as written.
    EXPECT_EQ(graphs["transformer.h"], dropout == 0 ? 1 : 0);
    EXPECT_EQ(graphs["transformer.h.eval"], dropout == 0 ? 0 : 1);
  }
}

TEST(DeepModels, DepthAddsCallsAndParametersOnly) {
  for (int64_t micro_batches : {1, 4}) {
    const StepOptions options{.clip_norm = 1.0, .micro_batches = micro_batches};
    std::vector<Counted> logical, local;
    for (int64_t layers : {6, 24, 48}) {
      Module step = only(gpt_step(layers, options, 0.1), "step");
      logical.push_back(count(step, "step"));
      CompileOptions options_of_mesh;
      options_of_mesh.mesh = parse_mesh("data=2");
      local.push_back(count(compile(std::move(step), options_of_mesh), "step"));
    }
    for (const std::vector<Counted>& counted : {logical, local}) {
      EXPECT_EQ(counted[0].graphs, counted[2].graphs);
      EXPECT_EQ(counted[0].matmuls, counted[2].matmuls);
      EXPECT_EQ(counted[0].entry_matmuls, counted[2].entry_matmuls);
      // The same for each layer: 12 parameters are reduced, clipped and updated. A body of micro-batches holds the calls and the sums of gradients.
      const int64_t added = counted[1].entry_nodes + counted[1].nodes - counted[0].entry_nodes - counted[0].nodes;
      EXPECT_EQ(added % 18, 0);
      EXPECT_LE(added / 18, 12 * 9);
      EXPECT_EQ(counted[2].entry_nodes + counted[2].nodes - counted[1].entry_nodes - counted[1].nodes, added / 18 * 24);
      if (micro_batches == 1) {
        EXPECT_EQ(counted[0].nodes, counted[2].nodes);
        EXPECT_EQ(counted[2].entry_calls - counted[1].entry_calls, 2 * 24);
      }
    }
  }
}

/// What a layer of gpt hands from its forward to its backward graph.
std::vector<TensorType> kept_by_a_layer(double dropout) {
  const ModelDefinition model = define_model("gpt", {{"layers", "2"}, {"width", "12"}, {"heads", "2"}, {"context", "8"}, {"dropout", std::to_string(dropout)}});
  const Module module = train_step(model.inputs, model.function, {}, {}, model.capture);
  std::vector<TensorType> kept;
  for (const Graph& graph : module.graphs)
    for (size_t i = 1; graph.name == "transformer.h_forward" && i < graph.outputs.size(); ++i) kept.push_back(graph.type(graph.outputs[i].value));
  return kept;
}

TEST(DeepModels, ALayerKeepsNothingOfTheSquareOfItsLength) {
  for (double dropout : {0.0, 0.1}) {
    const std::vector<TensorType> kept = kept_by_a_layer(dropout);
    bool has_row_sums = false;
    for (const TensorType& type : kept) {
      EXPECT_LE(std::count(type.shape.begin(), type.shape.end(), Dim(8)), 1) << text(type);
      has_row_sums |= text(type) == "f32[batch, 2, 8]";
    }
    EXPECT_TRUE(has_row_sums) << "the log-sum-exp of attention, from which its weights are made again";
  }
}

}  // namespace models_structure_test
}  // namespace stepgraph
