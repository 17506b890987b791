// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/needed.h"

#include <algorithm>

namespace stepgraph {
namespace {

std::vector<bool> live_results(const Node& node, const std::vector<bool>& live) {
  std::vector<bool> results;
  for (ValueId result : node.results) results.push_back(live[at(result)]);
  return results;
}

bool holds_random(const Module& module, const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (std::holds_alternative<Random>(node.op)) return true;
    const std::vector<GraphId> callees = called_graphs(node.op);
    return std::any_of(callees.begin(), callees.end(), [&](GraphId callee) { return holds_random(module, module.graph(callee)); });
  });
}

/// Numbers drawn in a loop depend on the order of sites on the way there: the call that holds the loop stays a call.
bool draws_in_loop(const Module& module, const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    const std::vector<GraphId> callees = called_graphs(node.op);
    return std::any_of(callees.begin(), callees.end(), [&](GraphId callee) {
      return std::holds_alternative<Loop>(node.op) ? holds_random(module, module.graph(callee)) : draws_in_loop(module, module.graph(callee));
    });
  });
}

/// The callee of a call that is looked into; null for other nodes.
const Graph* inlined_callee(const Module& module, const Node& node) {
  const Call* call = std::get_if<Call>(&node.op);
  return call && !draws_in_loop(module, module.graph(call->graph)) ? &module.graph(call->graph) : nullptr;
}

/// By value: whether the marked outputs depend on it.
std::vector<bool> live_values(const Module& module, const Graph& graph, const std::vector<bool>& outputs) {
  std::vector<bool> live(graph.values.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    if (outputs[i]) live[at(graph.outputs[i].value)] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const std::vector<bool> results = live_results(node, live);
    if (std::none_of(results.begin(), results.end(), [](bool result) { return result; })) continue;
    const Graph* callee = inlined_callee(module, node);
    const std::vector<bool> inputs = callee ? needed_inputs(module, *callee, results) : std::vector<bool>(node.inputs.size(), true);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (inputs[i]) live[at(node.inputs[i])] = true;
  }
  return live;
}

}  // namespace

std::vector<bool> needed_inputs(const Module& module, const Graph& graph, const std::vector<bool>& outputs) {
  const std::vector<bool> live = live_values(module, graph, outputs);
  std::vector<bool> needed;
  for (const GraphInput& input : graph.inputs) needed.push_back(live[at(input.value)]);
  return needed;
}

std::vector<std::optional<Value>> inline_needed(Builder& builder, const Graph& graph, const std::vector<std::optional<Value>>& inputs,
                                                const std::vector<bool>& outputs, const std::vector<int64_t>& path) {
  const Module& module = builder.module();
  const std::vector<bool> live = live_values(module, graph, outputs);
  std::vector<std::optional<Value>> map(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) map[at(graph.inputs[i].value)] = inputs[i];
  for (const Node& node : graph.nodes) {
    const std::vector<bool> wanted = live_results(node, live);
    if (std::none_of(wanted.begin(), wanted.end(), [](bool result) { return result; })) continue;
    std::vector<std::optional<Value>> arguments;
    for (ValueId input : node.inputs) arguments.push_back(map[at(input)]);
    std::vector<std::optional<Value>> results;
    if (const Graph* callee = inlined_callee(module, node)) {
      std::vector<int64_t> inner = path;
      inner.push_back(std::get<Call>(node.op).site);
      results = inline_needed(builder, *callee, arguments, wanted, inner);
    } else {
      std::vector<Value> present;
      for (const auto& argument : arguments) present.push_back(argument.value());
      std::vector<TensorType> types;
      for (ValueId result : node.results) types.push_back(graph.type(result));
      Op op = node.op;
      if (Random* random = std::get_if<Random>(&op)) random->path.insert(random->path.begin(), path.begin(), path.end());
      for (const Value& result : builder.append(std::move(op), present, std::move(types))) results.emplace_back(result);
    }
    for (size_t i = 0; i < results.size(); ++i) map[at(node.results[i])] = results[i];
  }
  std::vector<std::optional<Value>> values;
  for (size_t i = 0; i < graph.outputs.size(); ++i) values.push_back(outputs[i] ? map[at(graph.outputs[i].value)] : std::nullopt);
  return values;
}

}  // namespace stepgraph
