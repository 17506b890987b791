// SPDX-License-Identifier: Apache-2.0
// What grows with what: nodes, graphs and values of compiled modules, and the sizes at which work that grows faster than its module would not end.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/train/models/models.h"

namespace stepgraph {
namespace compile_size_test {

const TensorType row{DType::F32, {8}, {}};

/// Graphs that call the one before `calls` times, `depth` deep, and the gradient of the last.
Module nested_calls(int depth, int calls) {
  Module module;
  GraphId callee{-1};
  for (int level = 0; level < depth; ++level) {
    const GraphId graph = module.add_graph("level" + std::to_string(level));
    Builder builder(module, graph);
    Value x = builder.input(row);
    const Value weight = builder.input(row);
    if (level == 0) x = tanh(x * weight);
    for (int i = 0; level > 0 && i < calls; ++i) x = call(builder, callee, std::vector<Value>{x, weight}).at(0);
    builder.output(x);
    callee = graph;
  }
  const GraphId main = module.add_graph("main");
  module.entries = {{"step", main}};
  Builder builder(module, main);
  const Value x = builder.input(row, {RoleKind::Batch, "x"}), weight = builder.input(row, {RoleKind::Parameter, "w"});
  builder.output(*gradients(builder, sum(call(builder, callee, std::vector<Value>{x, weight}).at(0)), std::vector<Value>{weight}).at(0));
  return module;
}

Module compiled(Module module) {
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  return compile(prune_graphs(std::move(module)), options);
}

size_t value_count(const Module& module) {
  size_t count = 0;
  for (const Graph& graph : module.graphs) count += graph.values.size();
  return count;
}

TEST(CompileSize, CallsNestedOnceALevelGrowWithTheirDepth) {
  const size_t at_10 = value_count(compiled(nested_calls(10, 1))), at_20 = value_count(compiled(nested_calls(20, 1)));
  const Module deep = compiled(nested_calls(30, 1));
  EXPECT_EQ(value_count(deep) - at_20, at_20 - at_10);
  EXPECT_LE(deep.graphs.size(), 100u);
}

TEST(CompileSize, CallsNestedTwiceALevelGrowWithTheirLeaves) {
  const auto leaves = [](int depth) { return size_t{1} << (depth - 1); };
  for (const int depth : {8, 12}) {
    const Module module = compiled(nested_calls(depth, 2));
    EXPECT_LE(module.graphs.size(), 8u * static_cast<size_t>(depth));
    EXPECT_GE(value_count(module), leaves(depth));
    EXPECT_LE(value_count(module), 32 * leaves(depth));
  }
}

TEST(CompileSize, CallsNestedBeyondAMillionValuesNameTheirGraph) {
  try {
    nested_calls(40, 2);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("values in graph @level"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("wanted at most 1048576"), std::string::npos) << error.what();
  }
}

TEST(CompileSize, AGraphOfMoreThanAMillionValuesIsNamed) {
  Module module;
  Builder builder(module, module.add_graph("endless"));
  Value x = builder.input({DType::F32, {8}, {}});
  builder.graph().values.resize(graph_values_max - 1, builder.graph().values[0]);
  x = tanh(x);
  try {
    tanh(x);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("graph @endless has more than 1048576 values"), std::string::npos) << error.what();
  }
}

TEST(CompileSize, LayersAreOneGraphHoweverMany) {
  const auto step_of = [](int layers) {
    Module module = train_step(build_model("gpt", {{"layers", std::to_string(layers)}, {"width", "8"}, {"heads", "2"}, {"context", "8"}, {"vocabulary", "16"}}),
                               {}, {.clip_norm = 1.0});
    module.entries = {{"step", module.entry("step")}};
    return compiled(std::move(module));
  };
  const Module a = step_of(12), b = step_of(24), c = step_of(36);
  EXPECT_EQ(a.graphs.size(), b.graphs.size());
  EXPECT_EQ(node_count(b) - node_count(a), node_count(c) - node_count(b));
}

/// n inputs, each with a size of its own; all are declared alike.
Module sized_inputs(int n, const std::vector<int>& order) {
  Module module;
  const GraphId main = module.add_graph("main");
  module.entries = {{"main", main}};
  Builder builder(module, main);
  std::vector<Value> inputs;
  for (int i = 0; i < n; ++i) {
    const Dim size = module.symbols.declare({"n" + std::to_string(order[static_cast<size_t>(i)])});
    inputs.push_back(builder.input({DType::F32, {size}, {}}));
  }
  for (const Value& input : inputs) builder.output(neg(input));
  return module;
}

TEST(CompileSize, ManySymbolsThatAreDeclaredAlikeAreHashed) {
  constexpr int n = 2000;
  std::vector<int> order(n);
  for (int i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  const Module module = sized_inputs(n, order);
  std::reverse(order.begin(), order.end());
  EXPECT_EQ(module_hash(module), module_hash(sized_inputs(n, order)));
  order[5] = order[6];
  EXPECT_NE(module_hash(module), module_hash(sized_inputs(n, order)));
}

}  // namespace compile_size_test
}  // namespace stepgraph
