// SPDX-License-Identifier: Apache-2.0
// Dropout in a recomputed, moved, outlined, inlined, micro-batched, sharded graph is the same mask, in both directions: random programs in random forms,
// compared to the bit. All numbers are small integers, so that no order of a sum can hide or feign a difference. A failure prints its seed.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/passes/cse.h"
#include "stepgraph/compile/passes/expand.h"
#include "stepgraph/compile/passes/outline_repeats.h"
#include "stepgraph/compile/passes/simplify.h"
#include "stepgraph/reference/shards.h"
#include "tests/parallel/mesh_check.h"

namespace stepgraph {
namespace draws_test {

using Dice = std::mt19937;
int64_t roll(Dice& dice, int64_t sides) { return static_cast<int64_t>(dice() % static_cast<uint64_t>(sides)); }

const Dim batch = Dim::symbol("batch");
constexpr int64_t rows = 8;

/// Of an integer tensor, what is kept of it times a parameter that is 1, doubled: its sum checks the mask, and so does the parameter's gradient.
Value kept(Scope s, Value ids) { return dropout(ids * s.parameter("p", {}, initialize::ones()), 0.5, s.key()); }

/// Each iteration drops by a key of its own.
Value kept_in_loop(Scope s, Value ids, bool reverse) {
  Builder& outer = s.builder();
  Module& module = outer.module();
  Loop loop;
  loop.trip_count = 3, loop.carried = 1, loop.reverse = reverse;
  loop.symbol = iteration_symbol(module);
  loop.body = module.add_graph("recurrence");
  Builder body(module, loop.body);
  const Value total = body.input(ids.type()), given = body.input(ids.type()), key = body.input({DType::I64, {}, {}});
  const Value own = fold_in(key, size_value(body, DType::I64, Dim::symbol(loop.symbol)));
  body.output(total + dropout(given, 0.5, own));
  return outer.emit(loop, {zeros_like(ids), ids * s.parameter("p", {}, initialize::ones()), s.key()})[0];
}

/// One draw, or a few, of [batch, 4, 6] or of the same elements in other dims.
Value site(Scope s, Value ids, int64_t kind) {
  switch (kind) {
    case 0: return kept(s, ids);
    case 1: return kept(s, transpose(ids, 0, 1));
    case 2: return kept(s, flatten(transpose(ids, 0, 1), 0, 1));   // [4 * batch, 6]
    case 3: return kept(s, flatten(ids, 0, 1));                    // [batch * 4, 6]
    case 4: return kept(s, flatten(transpose(ids, 0, 1), 0, -1));  // [4 * batch * 6]
    case 5: return kept_in_loop(s, ids, false);
    case 6: return kept_in_loop(s, transpose(ids, 0, 2), true);
    case 7: {
      const Value turned = flatten(transpose(ids, 0, 1), 0, 1), shared[] = {turned};
      return repeat(s, 3, zeros_like(turned), shared,
                    [](Scope layer, Value x, std::span<const Value> in) { return x + kept(layer, in[0]) + kept(layer / "b", in[0]); });
    }
    case 8: {
      const Value shared[] = {ids};
      return repeat(s, 2, zeros_like(ids), shared, [](Scope outer, Value x, std::span<const Value> in) {
        return repeat(outer / "inner", 2, x, in, [](Scope layer, Value y, std::span<const Value> given) { return y + kept(layer, given[0]); });
      });
    }
    case 9: {  // a scalar draw for each row, and flat ones beside each other
      const Value row = kept(s / "row", select(select(ids, 2, 0), 1, 0));
      return concatenate(std::vector<Value>{row, flatten(kept(s / "flat", ids), 0, -1)}, 0);
    }
    default: return ids * broadcast_to(dropout(s.parameter("v", {6}, initialize::ones()), 0.5, s.key()), ids.shape());  // not of the batch
  }
}

ModelFunction program(uint32_t seed) {
  return [seed](Scope s, Inputs in) {
    Dice dice(seed);
    const int64_t sites = 2 + roll(dice, 4);
    Loss loss(full(s.builder(), DType::F32, {}, 0), size_value(s.builder(), DType::F32, batch));
    for (int64_t i = 0; i < sites; ++i) {
      const Value y = sum(site(s / ("s" + std::to_string(i)), in["ids"], roll(dice, 11)));
      loss.numerator = loss.numerator + y;
      loss.metric("s" + std::to_string(i), y, full(s.builder(), DType::F32, {}, 1));
    }
    return loss;
  };
}

/// Each reader of a draw makes it again.
Module drawn_again(Module module) {
  for (Graph& graph : module.graphs) {
    std::vector<Node> nodes;
    for (const Node& node : graph.nodes) {
      Node reader = node;
      for (ValueId& input : reader.inputs) {
        const int32_t made_by = graph.values[at(input)].node;
        if (made_by < 0 || !draw_place(graph.nodes[static_cast<size_t>(made_by)].op)) continue;
        Node again = graph.nodes[static_cast<size_t>(made_by)];
        graph.values.push_back(graph.values[at(again.results[0])]);
        again.results = {{static_cast<int32_t>(graph.values.size()) - 1}};
        input = again.results[0];
        nodes.push_back(std::move(again));
      }
      nodes.push_back(std::move(reader));
    }
    graph.nodes = std::move(nodes);
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (ValueId result : graph.nodes[n].results) graph.values[at(result)].node = static_cast<int32_t>(n);
    remove_dead_nodes(graph);
  }
  return module;
}

/// The nodes of every graph in another order that respects what they read.
Module moved(Module module, Dice& dice) {
  for (Graph& graph : module.graphs) {
    std::vector<Node> order;
    std::vector<bool> done(graph.nodes.size()), known(graph.values.size());
    for (const GraphInput& input : graph.inputs) known[at(input.value)] = true;
    while (order.size() < graph.nodes.size()) {
      std::vector<size_t> ready;
      for (size_t n = 0; n < graph.nodes.size(); ++n) {
        bool can = !done[n];
        for (ValueId input : graph.nodes[n].inputs) can = can && known[at(input)];
        if (can) ready.push_back(n);
      }
      const size_t next = ready[static_cast<size_t>(roll(dice, static_cast<int64_t>(ready.size())))];
      done[next] = true;
      for (ValueId result : graph.nodes[next].results) {
        known[at(result)] = true;
        graph.values[at(result)].node = static_cast<int32_t>(order.size());
      }
      order.push_back(graph.nodes[next]);
    }
    graph.nodes = std::move(order);
  }
  return module;
}

using Results = std::map<std::string, Literal>;

/// Losses, metrics and gradients by name.
Results run(const Module& step, int64_t micro_batches, const std::string& mesh) {
  const GraphId id = step.entry("step");
  const Graph& graph = step.graph(id);
  std::vector<Literal> inputs;
  for (const GraphInput& input : graph.inputs) {
    Sizes sizes;
    for (const Dim& dim : graph.type(input.value).shape) sizes.push_back(evaluate(dim, {{"batch", rows / micro_batches}}));
    if (input.role.kind == RoleKind::Batch) {
      Literal ids(DType::F32, sizes);
      for (int64_t i = 0; i < ids.count(); ++i) ids.set(i, static_cast<double>((i * 7 + i / 5) % 16));
      inputs.push_back(ids);
    } else {
      inputs.push_back(is_state(input.role.kind) ? Literal::full(DType::F32, sizes, 1)
                                                 : Literal::integer(DType::I64, input.role.kind == RoleKind::Seed ? 21 : 4));
    }
  }
  ShardingOptions sharding;
  const std::vector<Literal> outputs = mesh.empty() ? on_one_rank(step, inputs) : on_mesh(step, mesh, inputs, sharding, {{"batch", rows / micro_batches}});
  Results results;
  for (size_t i = 0; i < outputs.size(); ++i) results[std::string(name(graph.outputs[i].role.kind)) + " " + graph.outputs[i].role.name] = outputs[i];
  return results;
}

Module step_of(Module forward, int64_t micro_batches) {
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::Sgd;
  Module step = train_step(std::move(forward), sgd, {.micro_batches = micro_batches, .gradients_as_outputs = true});
  step.entries = {{"step", step.entry("step")}};
  step = prune_graphs(std::move(step));
  return step;
}

void expect_same_masks(uint32_t seed) {
  const std::vector<InputSpec> inputs = {{"ids", DType::F32, {batch, 4, 6}}};
  const Module forward = capture(inputs, program(seed));
  const Results wanted = run(step_of(forward, 1), 1, "");
  EXPECT_GT(wanted.at("loss_numerator loss").at(0), 0);
  Dice dice(seed + 1000);
  for (int form = 0; form < 6; ++form) {
    std::string said = "seed " + std::to_string(seed) + ":";
    Module made = forward;
    if (roll(dice, 2)) {
      made = inline_calls(std::move(made), [](const Graph& graph) { return graph.composite.empty(); }), said += " inlined";
      if (roll(dice, 2)) made = outline_repeats(std::move(made)), said += " outlined";
    }
    if (roll(dice, 3) == 0) made = drawn_again(std::move(made)), said += " drawn again";
    const int64_t micro_batches = int64_t{1} << roll(dice, 4);
    said += " micro-batches " + std::to_string(micro_batches);
    Module step = step_of(std::move(made), micro_batches);
    if (roll(dice, 3) == 0) step = inline_calls(std::move(step)), said += " flat";
    if (roll(dice, 2)) step = drawn_again(std::move(step)), said += " drawn again";
    if (roll(dice, 2)) step = merge_common_subexpressions(std::move(step)), said += " merged";
    if (roll(dice, 2)) step = moved(std::move(step), dice), said += " moved";
    const char* meshes[] = {"", "data=2", "data=3", "data=2,other=2"};
    const std::string mesh = meshes[roll(dice, 4)];
    said += " mesh " + mesh;
    SCOPED_TRACE(said);
    verify(step);
    const Results found = run(step, micro_batches, mesh);
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [name, value] : wanted) {
      if (name.starts_with("metric_denominator")) continue;  // one for each micro-batch
      EXPECT_TRUE(found.at(name) == value) << name << " begins with " << found.at(name).at(0) << ", wanted " << value.at(0);
    }
  }
}

TEST(DropoutMasks, AreTheSameInEveryForm) {
  for (uint32_t seed = 0; seed < 40; ++seed) expect_same_masks(seed);
}

TEST(LongDropoutMasks, AreTheSameInEveryForm) {
  for (uint32_t seed = 1000; seed < 3000; ++seed) expect_same_masks(seed);
}

}  // namespace draws_test
}  // namespace stepgraph
