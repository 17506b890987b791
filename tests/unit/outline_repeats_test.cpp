// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/passes/outline_repeats.h"
#include "stepgraph/compile/passes/repeated_runs.h"
#include "stepgraph/reference/interpreter.h"
#include "tests/support/effort.h"

namespace stepgraph {
namespace outline_repeats_test {

using Random = std::mt19937;
int below(Random& random, int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); }

/// What one layer does, so that it can be done again with other weights.
struct Step {
  int kind, a, b;
};
std::vector<Step> random_layer(Random& random) {
  std::vector<Step> steps(static_cast<size_t>(6 + below(random, 12)));
  for (Step& step : steps) step = {below(random, 8), below(random, 1000), below(random, 1000)};
  return steps;
}

/// `values` before: x, the mask, the weight. The result is the last value, kept small.
Value run_layer(const std::vector<Step>& steps, std::vector<Value> values, double constant, double rate, std::vector<Value>& also_read, bool reads) {
  Builder& b = *values[0].builder;
  for (const Step& step : steps) {
    const Value x = values[static_cast<size_t>(step.a) % values.size()], y = values[static_cast<size_t>(step.b) % values.size()];
    switch (step.kind) {
      case 0: values.push_back(tanh(x)); break;
      case 1: values.push_back(x + y); break;
      case 2: values.push_back(x * y); break;
      case 3: values.push_back(sigmoid(x - y)); break;
      case 4: values.push_back(x * full(b, DType::F64, {Dim(3)}, constant)); break;
      case 5: values.push_back(x + full(b, DType::F64, {Dim(3)}, rate)); break;
      case 6: values.push_back(moments(reshape(x, {Dim(1), Dim(3)}), {0}).mean); break;
      default: values.push_back(maximum(x, y)); break;
    }
  }
  if (reads) also_read.push_back(values[values.size() / 2]);
  return tanh(values.back() + values[0] * 0.5);
}

struct Made {
  Module module;
  size_t flat_nodes = 0;
};
/// Layers in groups, some nodes between the groups, with gradients of the sum.
Made random_program(unsigned seed) {
  Random random(seed);
  Made made;
  const GraphId graph = made.module.add_graph("main");
  made.module.entries.push_back({"main", graph});
  Builder builder(made.module, graph);
  std::vector<Value> inputs{builder.input({DType::F64, {Dim(3)}, {}}), builder.input({DType::F64, {Dim(3)}, {}})};
  for (int i = 0; i < 40; ++i) inputs.push_back(builder.input({DType::F64, {Dim(3)}, {}}));
  size_t weight = 2;
  Value x = inputs[0];
  std::vector<Value> also_read;
  const int stages = 1 + below(random, 3);
  const std::vector<Step> transition = random_layer(random);
  const std::vector<Step> layer = random_layer(random);
  for (int stage = 0; stage < stages; ++stage) {
    const std::vector<Step> own = below(random, 2) == 0 ? layer : random_layer(random);
    const int layers = 3 + below(random, 4), read = below(random, 2);
    for (int i = 0; i < layers; ++i) {
      builder.set_scope("stages." + std::to_string(stage) + "." + std::to_string(i));
      x = run_layer(own, {x, inputs[1], inputs[weight++]}, 0.75, 0.1 * i, also_read, read == 1 && i % 2 == 0);
    }
    builder.set_scope("");
    x = run_layer(transition, {x, inputs[1], inputs[weight++]}, 0.5, 0.1, also_read, false);
  }
  Value y = sum(x);
  for (const Value& value : also_read) y = y + sum(value);
  builder.output(y);
  remove_dead_nodes(made.module.graph(graph));
  made.flat_nodes = made.module.graph(graph).nodes.size();
  return made;
}

void add_gradients(Module& module) {
  Builder builder(module, module.entry("main"));
  std::vector<Value> xs;
  for (const GraphInput& input : builder.graph().inputs) xs.push_back(builder.value(input.value));
  const Value y = builder.value(builder.graph().outputs[0].value);
  for (const auto& gradient : gradients(builder, y, xs))
    if (gradient) builder.output(*gradient);
  verify(module);
}

TEST(OutlineRepeats, RandomProgramsKeepTheirValuesAndGradients) {
  int outlined = 0;
  for (unsigned seed = 0; seed < testing::rounds(150); ++seed) {
    Made made = random_program(seed);
    Module flat = made.module, calls = outline_repeats(made.module);
    verify(calls);
    const Graph& graph = calls.graph(calls.entry("main"));
    outlined += graph.nodes.size() < made.flat_nodes;
    std::vector<Literal> values;
    Random random(seed);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      std::vector<double> elements;
      for (int e = 0; e < 3; ++e) elements.push_back(below(random, 200) / 100.0 - 1);
      values.push_back(Literal::from_doubles(DType::F64, {3}, elements));
    }
    ASSERT_EQ(evaluate_graph(flat, flat.entry("main"), values), evaluate_graph(calls, calls.entry("main"), values)) << seed;
    add_gradients(flat);
    add_gradients(calls);
    const std::vector<Literal> wanted = evaluate_graph(flat, flat.entry("main"), values), found = evaluate_graph(calls, calls.entry("main"), values);
    ASSERT_EQ(wanted.size(), found.size()) << seed;
    for (size_t i = 0; i < wanted.size(); ++i)  // sums may be taken in another order
      for (int64_t e = 0; e < wanted[i].count(); ++e) ASSERT_NEAR(wanted[i].at(e), found[i].at(e), 1e-11 * (1 + std::abs(wanted[i].at(e)))) << seed << " " << i;
  }
  EXPECT_GT(outlined, testing::rounds(100));
}

Module chain(int64_t nodes, const std::function<int(int64_t)>& kind) {
  Module module;
  const GraphId graph = module.add_graph("main");
  module.entries.push_back({"main", graph});
  Builder builder(module, graph);
  Value x = builder.input({DType::F32, {Dim(2)}, {}});
  for (int64_t i = 0; i < nodes; ++i) x = unary(static_cast<UnaryKind>(kind(i)), x);
  builder.output(x);
  return module;
}

/// In quadratic time it would not end within the time of a test.
TEST(OutlineRepeats, LongProgramsOfAnyPattern) {
  Random random(1);
  const std::vector<std::function<int(int64_t)>> kinds{
      [](int64_t) { return 0; },                                                            // one op for ever
      [](int64_t i) { return static_cast<int>(i % 2); },                                    //
      [](int64_t i) { return __builtin_popcountll(static_cast<uint64_t>(i)) % 2; },         // Thue and Morse: squares everywhere, no cubes
      [](int64_t i) { return static_cast<int>(__builtin_ctzll(static_cast<uint64_t>(i) + 1) % 8); },  // a ruler: blocks in blocks in blocks
      [&](int64_t) { return below(random, 2); },                                            //
      [](int64_t i) { return static_cast<int>((i / 317) % 2 + 2 * (i % 317 == 0)); },       // long runs of one op
  };
  for (size_t k = 0; k < kinds.size(); ++k) {
    SCOPED_TRACE(k);
    verify(outline_repeats(chain(testing::rounds(100'000), kinds[k])));
  }
}

TEST(OutlineRepeats, RunsAreFoundAtTheirFullLength) {
  std::vector<uint64_t> tokens{9, 8};
  for (int i = 0; i < 3; ++i)
    for (uint64_t token : {1, 2, 3, 4, 5}) tokens.push_back(token);
  tokens.insert(tokens.end(), {1, 2, 7});
  const std::vector<RepeatedRun> runs = repeated_runs(tokens);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].start, 2U);
  EXPECT_EQ(runs[0].length, 17U);
  EXPECT_EQ(runs[0].period, 5U);
}

TEST(OutlineRepeats, BlocksOfOneGraphInTwoEntriesShareIt) {
  Module module = chain(0, [](int64_t) { return 0; });
  module.graphs.clear();
  module.entries.clear();
  for (const char* entry : {"forward", "eval"}) {
    const GraphId graph = module.add_graph(entry);
    module.entries.push_back({entry, graph});
    Builder builder(module, graph);
    Value x = builder.input({DType::F32, {Dim(2)}, {}});
    for (int i = 0; i < 4; ++i) x = tanh(exp(sin(cos(x) * x) + x));
    builder.output(x);
  }
  const Module calls = outline_repeats(std::move(module));
  EXPECT_EQ(calls.graphs.size(), 3U);
}

}  // namespace outline_repeats_test
}  // namespace stepgraph
