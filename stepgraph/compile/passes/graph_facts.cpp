// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/graph_facts.h"

#include <algorithm>
#include <cmath>

#include "stepgraph/compile/ops/known_values.h"

namespace stepgraph {
namespace {

std::vector<TensorType> types_of(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<TensorType> types;
  types.reserve(values.size());
  for (ValueId value : values) types.push_back(graph.type(value));
  return types;
}

/// A row without a rule, or a rule without factors: nothing is split, nothing is linear.
void fill_empty(std::vector<std::vector<std::vector<int>>>& values, const std::vector<TensorType>& types) {
  values.resize(types.size());
  for (size_t i = 0; i < types.size(); ++i) values[i].resize(types[i].rank());
}

NodeFacts node_facts(const Module& module, const Graph& graph, const Node& node) {
  NodeFacts facts;
  if (is_control(node.op)) return facts;
  const OpInfo& info = op_info(node.op);
  const std::vector<TensorType> inputs = types_of(graph, node.inputs), results = types_of(graph, node.results);
  if (info.sharding_rule != nullptr) facts.rule = info.sharding_rule({node.op, inputs, results, module});
  fill_empty(facts.rule.operands, inputs);
  fill_empty(facts.rule.results, results);
  facts.splittable = splittable_factors(facts.rule);
  std::vector<bool> in_operand(facts.rule.factors.size(), false);
  for (const auto& dims : facts.rule.operands)
    for (const auto& factors : dims)
      for (int f : factors) in_operand[static_cast<size_t>(f)] = true;
  for (size_t f = 0; f < in_operand.size(); ++f)
    if (facts.splittable[f] && !in_operand[f]) facts.makes_new_dims = true;
  return facts;
}

/// Every element, of small constants only: large equal ones are broadcast, and weights need no scan.
bool all_elements(const Literal& value, bool (*holds)(double)) {
  if (value.count() > 64) return false;
  for (int64_t i = 0; i < value.count(); ++i)
    if (!holds(value.at(i))) return false;
  return true;
}

/// A finite constant, or one moved about: linear in its one operand without summing.
bool node_is_finite(const Node& node, const ShardingRule& rule, const std::vector<bool>& is_finite) {
  if (const auto* constant = std::get_if<Constant>(&node.op)) return all_elements(constant->value, [](double x) { return std::isfinite(x) && x != 0; });
  const bool sums = std::any_of(rule.factors.begin(), rule.factors.end(), [](const ShardingFactor& factor) { return factor.kind == FactorKind::Reduction; });
  return !sums && node.inputs.size() == 1 && rule.linear_groups == std::vector<std::vector<int>>{{0}} && is_finite[static_cast<size_t>(node.inputs[0].index)];
}

/// Whether the operands that hold the value of operand `input` may be partial: x * x is not linear in x, though each side is.
bool is_linear_in(const Node& node, const ShardingRule& rule, size_t input) {
  const auto holds_all = [&](const std::vector<int>& group) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == node.inputs[input] && std::find(group.begin(), group.end(), static_cast<int>(i)) == group.end()) return false;
    return true;
  };
  return std::any_of(rule.linear_groups.begin(), rule.linear_groups.end(), holds_all);
}

}  // namespace

const GraphFacts& FactTable::of(GraphId graph) {
  std::optional<GraphFacts>& slot = facts_.at(static_cast<size_t>(graph.index));
  if (!slot) slot = compute(module_.graph(graph));
  return *slot;
}

GraphFacts FactTable::compute(const Graph& graph) {
  GraphFacts facts;
  for (const ValueInfo& value : graph.values) {
    double count = 1;
    for (const Dim& dim : value.type.shape) count *= middling_size(dim);
    facts.size.push_back(count);
  }
  facts.is_zero.assign(graph.values.size(), false);
  facts.is_finite.assign(graph.values.size(), false);
  facts.must_be_whole.assign(graph.values.size(), false);
  facts.nodes.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    facts.nodes.push_back(node_facts(module_, graph, node));
    note_values(graph, node, facts);
  }
  note_uses(graph, facts);
  for (const GraphInput& input : graph.inputs) facts.input_must_be_whole.push_back(facts.must_be_whole[static_cast<size_t>(input.value.index)]);
  return facts;
}

double FactTable::middling_size(const Dim& dim) {
  if (dim.is_constant()) return static_cast<double>(dim.constant());
  const auto [known, is_new] = sizes_.try_emplace(dim, 0);
  if (!is_new) return known->second;
  const Bounds bounds = module_.symbols.bounds(dim);
  const int64_t low = std::max<int64_t>(bounds.minimum, 0), high = std::max(low, bounds.maximum);
  return known->second = static_cast<double>(std::clamp<int64_t>(64, low, high));
}

void FactTable::note_values(const Graph& graph, const Node& node, GraphFacts& facts) {
  ShardingRule& rule = facts.nodes.back().rule;
  std::erase_if(rule.linear_groups, [&](const std::vector<int>& group) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool multiplies = std::find(group.begin(), group.end(), static_cast<int>(i)) == group.end() && is_floating(graph.type(node.inputs[i]).dtype);
      if (multiplies && !facts.is_finite[static_cast<size_t>(node.inputs[i].index)]) return true;
    }
    return false;
  });
  if (node.results.size() != 1) return;
  const auto result = static_cast<size_t>(node.results[0].index);
  facts.is_zero[result] = is_zero(graph, node.results[0]);
  facts.is_finite[result] = node_is_finite(node, rule, facts.is_finite);
}

void FactTable::note_uses(const Graph& graph, GraphFacts& facts) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto whole = [&](size_t input) { facts.must_be_whole[static_cast<size_t>(node.inputs[input].index)] = true; };
    if (std::holds_alternative<MapTensors>(node.op)) {
      for (size_t i = 0; i < node.inputs.size(); ++i) whole(i);
      continue;
    }
    const std::vector<GraphId> callees = called_graphs(node.op);
    if (!callees.empty()) {
      // A Call's and a Loop's inputs stand in the order of the inputs of their graph.
      const std::vector<bool> needs = of(callees.front()).input_must_be_whole;
      SG_CHECK(needs.size() == node.inputs.size(), "call and callee differ in their number of inputs");
      for (size_t i = 0; i < needs.size(); ++i)
        if (needs[i]) whole(i);
      continue;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!is_linear_in(node, facts.nodes[n].rule, i)) whole(i);
  }
}

}  // namespace stepgraph
