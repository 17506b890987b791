// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/module.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

namespace stepgraph {

std::string_view name(Stage stage) {
  constexpr std::array<std::string_view, 3> names = {"logical", "sharded", "local"};
  return names[static_cast<size_t>(stage)];
}

GraphId Module::add_graph(std::string graph_name) {
  graphs.emplace_back();
  graphs.back().name = std::move(graph_name);
  return {static_cast<int32_t>(graphs.size() - 1)};
}

std::optional<GraphId> Module::find_entry(std::string_view entry_name) const {
  for (const Entry& candidate : entries)
    if (candidate.name == entry_name) return candidate.graph;
  return std::nullopt;
}

GraphId Module::entry(std::string_view entry_name) const {
  if (auto found = find_entry(entry_name)) return *found;
  std::string known;
  for (const Entry& candidate : entries) known += (known.empty() ? "" : ", ") + candidate.name;
  throw UserError("module " + name + " has no entry '" + std::string(entry_name) + "'; its entries: " + (known.empty() ? "none" : known));
}

TensorType Module::declare_state(const Role& role, TensorType type) {
  std::optional<Sharding> wish;
  if (stage == Stage::Logical) wish.swap(type.sharding);
  StateInfo& state = states.enter(role, type);
  if (wish && state.wish && *wish != *state.wish)
    throw UserError("state '" + role.name + "': found layout <" + text(*wish) + ">, elsewhere it has <" + text(*state.wish) + ">");
  if (wish) state.wish = std::move(wish);
  return type;
}

std::optional<ValueId> find_input(const Graph& graph, RoleKind kind, std::string_view input_name) {
  for (const GraphInput& input : graph.inputs)
    if (input.role.kind == kind && (input_name.empty() || input.role.name == input_name)) return input.value;
  return std::nullopt;
}

void order_inputs(Graph& graph) {
  auto rank = [](const GraphInput& input) {
    switch (input.role.kind) {
      case RoleKind::Parameter: return 0;
      case RoleKind::Buffer: return 1;
      case RoleKind::OptimizerState: return 2;
      case RoleKind::Batch: return 3;
      case RoleKind::Seed: return 4;
      default: return 5;
    }
  };
  std::stable_sort(graph.inputs.begin(), graph.inputs.end(), [&](const GraphInput& a, const GraphInput& b) { return rank(a) < rank(b); });
}

Module prune_graphs(Module module) {
  std::vector<GraphId> map(module.graphs.size());
  std::vector<GraphId> order;
  // Callees first, so that a reader meets a graph before its use.
  std::function<void(GraphId)> visit = [&](GraphId id) {
    if (map[static_cast<size_t>(id.index)].index >= 0) return;
    map[static_cast<size_t>(id.index)].index = 0;  // entered; the call graph has no cycle
    const Graph& graph = module.graph(id);
    for (const Node& node : graph.nodes)
      for (GraphId callee : called_graphs(node.op)) visit(callee);
    if (graph.gradient) visit(*graph.gradient);
    map[static_cast<size_t>(id.index)].index = static_cast<int32_t>(order.size());
    order.push_back(id);
  };
  for (const Entry& entry : module.entries) visit(entry.graph);
  std::deque<Graph> graphs;
  for (GraphId id : order) {
    Graph graph = std::move(module.graph(id));
    for (Node& node : graph.nodes)
      if (is_control(node.op)) node.op = renumber_graphs(node.op, map);
    if (graph.gradient) graph.gradient = map[static_cast<size_t>(graph.gradient->index)];
    graphs.push_back(std::move(graph));
  }
  module.graphs = std::move(graphs);
  for (Entry& entry : module.entries) entry.graph = map[static_cast<size_t>(entry.graph.index)];
  std::set<std::string_view> taken;
  for (const Entry& entry : module.entries)
    for (const GraphInput& input : module.graph(entry.graph).inputs)
      if (is_state(input.role.kind)) taken.insert(input.role.name);
  module.states.keep_if([&](const StateInfo& state) { return taken.count(state.name) > 0; });
  return module;
}

void number_producers(Graph& graph) {
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (const ValueId result : graph.nodes[n].results) graph.values[at(result)].node = static_cast<int32_t>(n);
}

void remove_dead_nodes(Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  for (const GraphOutput& output : graph.outputs) live[static_cast<size_t>(output.value.index)] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    for (ValueId result : node.results)
      if (live[static_cast<size_t>(result.index)]) keep[n] = true;
    if (!keep[n]) continue;
    for (ValueId input : node.inputs) live[static_cast<size_t>(input.index)] = true;
  }
  // Values are renumbered densely: inputs first, then results in node order.
  std::vector<ValueId> map(graph.values.size());
  std::deque<ValueInfo> values;
  auto take = [&](ValueId id, int32_t node) {
    map[static_cast<size_t>(id.index)] = {static_cast<int32_t>(values.size())};
    values.push_back({std::move(graph.values[static_cast<size_t>(id.index)].type), node});
  };
  for (const GraphInput& input : graph.inputs) take(input.value, -1);
  std::vector<Node> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!keep[n]) continue;
    Node node = std::move(graph.nodes[n]);
    for (ValueId result : node.results) take(result, static_cast<int32_t>(nodes.size()));
    for (ValueId& input : node.inputs) input = map[static_cast<size_t>(input.index)];
    for (ValueId& result : node.results) result = map[static_cast<size_t>(result.index)];
    nodes.push_back(std::move(node));
  }
  for (GraphInput& input : graph.inputs) input.value = map[static_cast<size_t>(input.value.index)];
  for (GraphOutput& output : graph.outputs) output.value = map[static_cast<size_t>(output.value.index)];
  graph.values = std::move(values);
  graph.nodes = std::move(nodes);
}

Module with_floating_dtype(Module module, DType dtype) {
  for (StateInfo& state : module.states)
    if (is_floating(state.type.dtype)) state.type.dtype = dtype;
  for (Graph& graph : module.graphs) {
    for (ValueInfo& value : graph.values)
      if (is_floating(value.type.dtype)) value.type.dtype = dtype;
    for (Node& node : graph.nodes) {
      for_each_field<DType>(node.op, [&](DType& attribute) {
        if (is_floating(attribute)) attribute = dtype;
      });
      for_each_field<std::optional<DType>>(node.op, [&](std::optional<DType>& attribute) {
        if (attribute && is_floating(*attribute)) attribute = dtype;
      });
      for_each_field<Literal>(node.op, [&](Literal& literal) {
        if (is_floating(literal.dtype())) literal = literal.converted(dtype);
      });
    }
  }
  return module;
}

}  // namespace stepgraph
