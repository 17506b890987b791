// SPDX-License-Identifier: Apache-2.0
// Attention by batch and by heads: no rank asks another one for anything; and the norm of gradients of which some are split.
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/step/train_step.h"
#include "stepgraph/train/models/models.h"
#include "tests/parallel/mesh_check.h"

namespace stepgraph {
namespace attention_test {

struct Case {
  int64_t heads, key_heads;
  std::string mask;  // its sizes in text, "" for none
};

Module attention_module(const Case& c, bool causal, double dropout = 0) {
  return module_of([&](Builder& builder) {
    const DType f64 = DType::F64;
    const Value q = parameter_input(builder, "q", f64, {5, c.heads, 3, 2}), k = parameter_input(builder, "k", f64, {5, c.key_heads, 4, 2}),
                v = parameter_input(builder, "v", f64, {5, c.key_heads, 4, 6});
    std::vector<Value> operands{q, k, v};
    if (c.mask == "whole") operands.push_back(parameter_input(builder, "mask", f64, {5, c.heads, 3, 4}));
    if (c.mask == "keys") operands.push_back(parameter_input(builder, "mask", f64, {5, 1, 1, 4}));
    if (c.mask == "square") operands.push_back(parameter_input(builder, "mask", f64, {3, 4}));
    const std::vector<Value> xs = operands;
    Attention op{0.6, causal, dropout, {}};
    if (dropout != 0) {
      operands.push_back(constant(builder, Literal::integer(DType::I64, 5)));
      op.place = DrawPlace::whole({5, c.heads, 3, 4});
    }
    const std::vector<Value> results = builder.emit(op, operands);
    user_output(results[0], "out");
    user_output(results[1], "lse");
    const Value loss = sum(results[0] * results[0] + results[0]) + sum(results[1]);
    for (const auto& gradient : gradients(builder, loss, xs)) user_output(*gradient, "gradient " + std::to_string(builder.graph().outputs.size()));
  });
}

std::vector<Literal> operands_of(const Module& module) {
  std::vector<Literal> inputs;
  const Graph& graph = module.graph(module.entry("main"));
  for (const GraphInput& input : graph.inputs) {
    Sizes sizes;
    for (const Dim& dim : graph.type(input.value).shape) sizes.push_back(dim.constant());
    inputs.push_back(numbers(DType::F64, sizes, static_cast<int64_t>(inputs.size()) * 100));
  }
  return inputs;
}

ShardingOptions by_batch_and_heads(const Case& c) {
  ShardingOptions sharding;
  for (const char* name : {"q", "k", "v"}) {
    const bool whole_heads = c.key_heads == 1 && std::string(name) != "q";
    const ShardingOptions one = laid(name, whole_heads ? "{data}, {}, {}, {}" : "{data}, {model}, {}, {}");
    sharding.inputs.insert(sharding.inputs.end(), one.inputs.begin(), one.inputs.end());
  }
  return sharding;
}

TEST(AttentionOnAMesh, ByBatchAndHeadsEqualsOneRank) {
  for (const Case& c : {Case{4, 4, ""}, Case{4, 2, "whole"}, Case{4, 1, "keys"}, Case{6, 3, "square"}, Case{2, 2, "square"}}) {
    for (double dropout : {0.0, 0.4}) {
      const Module module = attention_module(c, dropout == 0, dropout);
      const std::vector<Literal> inputs = operands_of(module), wanted = on_one_rank(module, inputs);
      for (const char* mesh : {"data=2,model=2", "data=3,model=2", "data=1,model=4"})
        expect_close(on_mesh(module, mesh, inputs, by_batch_and_heads(c)), wanted, 1e-13,
                     std::to_string(c.heads) + " heads, " + std::to_string(c.key_heads) + " of keys, mask " + c.mask + ", " + mesh);
    }
  }
}

TEST(AttentionOnAMesh, ForwardSendsNothing) {
  for (const Case& c : {Case{4, 4, ""}, Case{4, 2, "keys"}, Case{4, 1, "square"}}) {
    Module module = attention_module(c, true);
    Graph& graph = module.graph(module.entry("main"));
    graph.outputs.clear();
    const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return std::holds_alternative<Attention>(n.op); });
    Builder builder(module, module.entry("main"));
    user_output(sum(builder.value(node->results[0])), "sum");
    remove_dead_nodes(graph);
    CompileOptions options;
    options.mesh = parse_mesh("data=2,model=2");
    options.sharding = by_batch_and_heads(c);
    const Module local = compile(module, options);
    const GraphId main = local.entry("main");
    EXPECT_EQ(count_nodes<AllGather>(local, main) + count_nodes<ReduceScatter>(local, main), 0) << c.heads << " " << c.key_heads;
    EXPECT_EQ(count_nodes<AllReduce>(local, main), 1) << "of the sum";
    EXPECT_EQ(count_nodes<Attention>(local, main), 1);
  }
}

/// Gradients of which some are split over one axis, some over two, and some are whole.
TEST(GradientNorm, OfSplitGradientsIsThatOfOneRank) {
  const ModelDefinition model = define_model("mlp", {{"size", "3"}, {"hidden", "8,5"}, {"classes", "4"}});
  Module module = train_step(model.inputs, model.function, {}, {.clip_norm = 0.01}, model.capture);
  module.entries = {{"step", module.entry("step")}};
  module = prune_graphs(std::move(module));
  const Graph& graph = module.graph(module.entry("step"));
  EXPECT_EQ(count_nodes<MapTensors>(module, module.entry("step")), 2) << "the norm and the optimizer";
  std::vector<Literal> inputs;
  SymbolValues symbols;
  for (const GraphInput& input : graph.inputs) {
    Sizes sizes;
    const TensorType& type = graph.type(input.value);
    for (const Dim& dim : type.shape) {
      if (!dim.is_constant()) symbols[dim.symbols()[0]] = 6;
      sizes.push_back(dim.is_constant() ? dim.constant() : 6);
    }
    inputs.push_back(is_floating(type.dtype) ? numbers(type.dtype, sizes, static_cast<int64_t>(inputs.size()) * 31) : indices(sizes, 4));
    if (input.role.name.ends_with("exp_avg_sq")) inputs.back() = Literal::full(type.dtype, sizes, 0.5);
  }
  const std::vector<Literal> wanted = on_one_rank(module, inputs, symbols);
  ShardingOptions sharding;
  for (const char* pattern : {"*0.weight*", "*0.bias*"}) {
    const ShardingOptions one = laid(pattern, std::string(pattern) == "*0.weight*" ? "{model}, {data}" : "{model}");
    sharding.inputs.insert(sharding.inputs.end(), one.inputs.begin(), one.inputs.end());
  }
  for (const char* mesh : {"data=2", "data=3,model=2"}) {
    ShardingOptions own = sharding;
    if (std::string(mesh) == "data=2") own = {};
    expect_close(on_mesh(module, mesh, inputs, own, symbols), wanted, 1e-5, mesh);
  }
}

}  // namespace attention_test
}  // namespace stepgraph
