// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/passes/cse.h"
#include "stepgraph/compile/passes/expand.h"
#include "stepgraph/compile/passes/factor_splits.h"
#include "stepgraph/compile/passes/simplify.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph {
namespace passes_test {

template <class Build>
Module module_of(Build build) {
  Module module;
  const GraphId graph = module.add_graph("main");
  module.entries.push_back({"main", graph});
  Builder builder(module, graph);
  build(builder);
  return module;
}
Value input(Builder& b, DType dtype, const Shape& shape) { return b.input({dtype, shape, {}}); }
size_t nodes(const Module& module) { return module.graph(module.entry("main")).nodes.size(); }

// ---- simplify

TEST(Simplify, IdentitiesGo) {
  const Module module = simplify(module_of([](Builder& b) {
    const Value x = input(b, DType::F32, {2, 3});
    b.output(convert(x * 1.0, DType::F32) / 1.0);
    b.output(permute(permute(x, {1, 0}), {1, 0}));
    b.output(reshape(reshape(x, {6}), {2, 3}));
    b.output(-(-(x - 0.0)));
    b.output(slice(x, 0, 0, 2));
    b.output(pad(x, {0, 0}, {0, 0}));
    b.output(flip(x, {}));
    b.output(logical_not(logical_not(greater(x, 0.5))));
  }));
  const Graph& graph = module.graph(module.entry("main"));
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(graph.outputs[i].value, graph.inputs[0].value) << i;
  EXPECT_EQ(nodes(module), 3U);  // the constant, its broadcast and the comparison
  verify(module);
}

TEST(Simplify, KeepsWhatWouldChangeABit) {
  const Module module = simplify(module_of([](Builder& b) {
    const Value x = input(b, DType::F32, {});
    b.output(x + 0.0);                                       // -0 becomes 0
    b.output(x * 0.0);                                       // NaN, infinity, sign
    b.output(convert(convert(x, DType::BF16), DType::F32));  // rounds
    b.output(0.0 - x);
  }));
  const Graph& graph = module.graph(module.entry("main"));
  for (const GraphOutput& output : graph.outputs) EXPECT_NE(output.value, graph.inputs[0].value);
  EXPECT_EQ(evaluate_graph(module, module.entry("main"), std::vector<Literal>{Literal::scalar(DType::F32, -0.0)})[0], Literal::scalar(DType::F32, 0.0));
}

TEST(Simplify, IntegersPlusZeroAndFoldedConstants) {
  const Module module = simplify(module_of([](Builder& b) {
    const Value n = input(b, DType::I64, {4});
    b.output(n + 0.0);
    b.output(exp(scalar(b, DType::F64, 1) * scalar(b, DType::F64, 2)));
  }));
  const Graph& graph = module.graph(module.entry("main"));
  EXPECT_EQ(graph.outputs[0].value, graph.inputs[0].value);
  ASSERT_EQ(nodes(module), 1U);
  EXPECT_NEAR(std::get<Constant>(graph.nodes[0].op).value.at(0), 7.38905609893065, 1e-13);
}

// ---- cse

TEST(Cse, EqualNodesBecomeOneRandomOnesByKey) {
  const Module module = merge_common_subexpressions(module_of([](Builder& b) {
    const Value x = input(b, DType::F32, {4}), seed = input(b, DType::I64, {}), step = input(b, DType::I64, {});
    b.output(exp(x * 2.0) + exp(x * 2.0));
    b.output(exp(x * 3.0));
    for (int64_t draw : {0, 1, 0}) b.output(random_uniform(fold_in(fold_in(seed, step), draw), DType::F32, {4}));
  }));
  int64_t exps = 0, randoms = 0;
  for (const Node& node : module.graph(module.entry("main")).nodes) {
    exps += node.op == Op(Unary{UnaryKind::Exp});
    randoms += std::holds_alternative<Random>(node.op);
  }
  EXPECT_EQ(exps, 2);
  EXPECT_EQ(randoms, 2);
  verify(module);
}

TEST(Cse, ConstantsDifferByDtypeSizesAndBits) {
  const Module module = merge_common_subexpressions(module_of([](Builder& b) {
    b.output(constant(b, Literal::full(DType::F32, {2}, 1)));
    b.output(constant(b, Literal::full(DType::F32, {2}, 1)));
    b.output(constant(b, Literal::full(DType::F64, {2}, 1)));
    b.output(constant(b, Literal::full(DType::F32, {1, 2}, 1)));
    b.output(constant(b, Literal::full(DType::F32, {2}, -0.0)));
    b.output(constant(b, Literal::full(DType::F32, {2}, 0.0)));
  }));
  EXPECT_EQ(nodes(module), 5U);
}

// ---- expansion

Module nested_calls() {
  return module_of([](Builder& b) {
    Module& m = b.module();
    const GraphId inner = m.add_graph("inner"), outer = m.add_graph("outer");
    m.graph(inner).composite = "noise";
    {
      Builder i(m, inner);
      const Value key = input(i, DType::I64, {});
      i.output(random_uniform(key, DType::F64, {3}));
    }
    {
      Builder o(m, outer);
      const Value key = input(o, DType::I64, {});
      const Value first[] = {fold_in(key, 0)}, second[] = {fold_in(key, 1)};
      o.output(call(o, inner, first)[0] + call(o, inner, second)[0]);
    }
    const Value seed = input(b, DType::I64, {}), step = input(b, DType::I64, {}), key = fold_in(seed, step);
    const Value first[] = {fold_in(key, 0)}, second[] = {fold_in(key, 1)}, third[] = {fold_in(key, 2)};
    b.output(call(b, outer, first)[0]);
    b.output(call(b, outer, second)[0]);
    b.output(call(b, inner, third)[0]);
  });
}

TEST(InlineCalls, KeepsRandomNumbers) {
  const Module module = nested_calls();
  const std::vector<Literal> inputs = {Literal::integer(DType::I64, 5), Literal::integer(DType::I64, 6)};
  const auto wanted = evaluate_graph(module, module.entry("main"), inputs);
  EXPECT_NE(wanted[0], wanted[1]);
  const Module flat = inline_calls(module);
  verify(flat);
  EXPECT_EQ(flat.graphs.size(), 1U);
  EXPECT_EQ(evaluate_graph(flat, flat.entry("main"), inputs), wanted);
  // Only the outer ones are asked for: the inner ones, which draw, stay calls.
  const Module outer_only = inline_calls(module, [](const Graph& graph) { return graph.name == "outer"; });
  verify(outer_only);
  EXPECT_EQ(outer_only.graphs.size(), 2U);
  EXPECT_EQ(evaluate_graph(outer_only, outer_only.entry("main"), inputs), wanted);
  const Module inner_only = inline_calls(module, [](const Graph& graph) { return graph.composite == "noise"; });
  EXPECT_EQ(inner_only.graphs.size(), 2U);
  EXPECT_EQ(evaluate_graph(inner_only, inner_only.entry("main"), inputs), wanted);
}

TEST(ExpandMapTensors, GivesTheSameValues) {
  const Module module = module_of([](Builder& b) {
    const GraphId body = b.module().add_graph("update");
    {
      Builder i(b.module(), body);
      const Value p = input(i, DType::F64, {}), g = input(i, DType::F64, {}), rate = input(i, DType::F64, {});
      const Value half = rate * 0.5;
      i.output(p - half * g);
      i.output(half);
    }
    const Value p0 = input(b, DType::F64, {2, 3}), p1 = input(b, DType::F64, {}), g0 = input(b, DType::F64, {2, 3}), g1 = input(b, DType::F64, {});
    const Value rate = input(b, DType::F64, {});
    for (const Value& result : b.emit(MapTensors{body, 2, 2}, {p0, p1, g0, g1, rate})) b.output(result);
  });
  const auto tensor = [](double value) { return Literal::full(DType::F64, {2, 3}, value); };
  const auto number = [](double value) { return Literal::scalar(DType::F64, value); };
  const std::vector<Literal> inputs = {tensor(1), number(2), tensor(3), number(4), number(0.5)};
  const Module flat = expand_map_tensors(module);
  verify(flat);
  EXPECT_EQ(flat.graphs.size(), 1U);
  const auto wanted = evaluate_graph(module, module.entry("main"), inputs);
  EXPECT_EQ(wanted[0], tensor(0.25));
  EXPECT_EQ(evaluate_graph(flat, flat.entry("main"), inputs), wanted);
}

// ---- the pipeline

TEST(Pipeline, LogsSkipsAndStops) {
  const Module module = module_of([](Builder& b) { b.output(input(b, DType::F32, {4}) * 1.0); });
  PassLog log;
  int64_t now = 0;
  std::vector<std::string> dumped;
  log.clock_us = [&] { return now += 5; };
  log.dump = [&](const std::string& pass, const Module&) { dumped.push_back(pass); };
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  EXPECT_EQ(compile(module, options, &log).stage, Stage::Local);
  ASSERT_EQ(log.passes.size(), 4U);
  EXPECT_EQ(log.passes[0].name, "simplify");
  EXPECT_EQ(log.passes[0].elapsed_us, 5);
  EXPECT_EQ(log.passes[0].nodes_before, 3);
  EXPECT_EQ(log.passes[0].nodes_after, 0);
  EXPECT_EQ(dumped, (std::vector<std::string>{"simplify", "cse", "propagate", "partition"}));

  options.skip = {"simplify"};
  options.stop_at = "propagate";
  const Module sharded = compile(module, options);
  EXPECT_EQ(sharded.stage, Stage::Sharded);
  EXPECT_EQ(sharded.graph(sharded.entry("main")).nodes.size(), 3U);
  options.stop_at = "simplify";
  EXPECT_EQ(compile(module, options).stage, Stage::Logical);
}

TEST(Pipeline, UnknownNamesAreTheUsersError) {
  const Module module = module_of([](Builder& b) { b.output(input(b, DType::F32, {4})); });
  CompileOptions options;
  options.skip = {"partition"};
  EXPECT_THROW(compile(module, options), UserError);
  options.skip = {};
  options.stop_at = "codegen";
  EXPECT_THROW(compile(module, options), UserError);
}

// ---- factors

TEST(FactorSplits, OnlyLeadingFactorsOfMergedDimsAreSplit) {
  // [a, b] -> [a*b]: a leads the merged dim, b does not.
  ShardingRule rule;
  rule.factors = {{FactorKind::Parallel, 6, ReduceKind::Sum}, {FactorKind::Parallel, 4, ReduceKind::Sum}};
  rule.operands = {{{0}, {1}}};
  rule.results = {{{0, 1}}};
  const std::vector<bool> splittable = splittable_factors(rule);
  EXPECT_TRUE(splittable[0]);
  EXPECT_FALSE(splittable[1]);
  const Mesh mesh = parse_mesh("data=4");
  FactorSplits splits(2);
  take_splits(rule, splittable, rule.operands[0], parse_sharding("{data}, {}").dims, splits);
  EXPECT_EQ(text(layout_of(rule, splits, rule.results[0], {24}, mesh)), "{data grain 4}");
  // Back from the merged dim: its grain tells how the leading factor is cut.
  FactorSplits back(2);
  take_splits(rule, splittable, rule.results[0], parse_sharding("{data grain 8}").dims, back);
  EXPECT_EQ(text(layout_of(rule, back, rule.operands[0], {6, 4}, mesh)), "{data grain 2}, {}");
}

TEST(FactorSplits, AnAxisSplitsOneFactorAndTheGrainGoesWhenEven) {
  ShardingRule rule;
  rule.factors = {{FactorKind::Parallel, 6, ReduceKind::Sum}, {FactorKind::Parallel, 6, ReduceKind::Sum}};
  rule.operands = {{{0}}, {{1}}};
  rule.results = {{{0}, {1}}};
  const std::vector<bool> splittable = splittable_factors(rule);
  FactorSplits splits(2);
  take_splits(rule, splittable, rule.operands[0], parse_sharding("{data}").dims, splits);
  take_splits(rule, splittable, rule.operands[1], parse_sharding("{data}").dims, splits);
  EXPECT_TRUE(splits[1].axes.empty());
  const Mesh mesh = parse_mesh("data=2,model=4");
  EXPECT_EQ(canonical(parse_sharding("{data grain 3}").dims[0], 12, mesh).grain, Dim(1));
  EXPECT_EQ(canonical(parse_sharding("{data grain 3}").dims[0], 9, mesh).grain, Dim(3));
  EXPECT_TRUE(canonical(parse_sharding("{data}").dims[0], 1, mesh).axes.empty());
  EXPECT_TRUE(overlap({"model"}, {"model", 2, 2}));
  EXPECT_FALSE(overlap({"model", 1, 2}, {"model", 2, 2}));
  EXPECT_FALSE(overlap({"data"}, {"model"}));
}

}  // namespace passes_test
}  // namespace stepgraph
