// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/graph_classes.h"

#include <algorithm>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/passes/op_hash.h"

namespace stepgraph {

GraphClasses::GraphClasses(const Module& module) : module_(module) {
  for (const Graph& graph : module.graphs)
    for (const Node& node : graph.nodes)
      if (const auto* random = std::get_if<Random>(&node.op)) ++random_uses_[draw_of(*random)];
}

Op GraphClasses::normal(const Op& op) {
  Op result = op;
  if (auto* random = std::get_if<Random>(&result)) random->id = 0, random->path.clear();
  if (auto* call = std::get_if<Call>(&result)) call->site = 0, call->graph = of(call->graph);
  if (auto* loop = std::get_if<Loop>(&result)) loop->site = 0, loop->body = of(loop->body);
  if (auto* map = std::get_if<MapTensors>(&result)) map->body = of(map->body);
  return result;
}

bool GraphClasses::same(const Op& a, const Op& b) {
  if (&a == &b) return true;
  if (a.index() != b.index()) return false;
  const auto* random = std::get_if<Random>(&a);
  if (!random && !is_control(a)) return a == b;
  if (random && (random_uses_[draw_of(*random)] > 1 || random_uses_[draw_of(std::get<Random>(b))] > 1)) return false;
  return normal(a) == normal(b);
}

uint64_t GraphClasses::hash(const Op& op) {
  return std::holds_alternative<Random>(op) || is_control(op) ? op_hash(normal(op)) : op_hash(op);
}

uint64_t GraphClasses::hash(const Graph& graph) {
  uint64_t hash = graph.inputs.size();
  for (const Node& node : graph.nodes) {
    hash = mix_hash(hash, this->hash(node.op));
    for (ValueId input : node.inputs) hash = mix_hash(hash, static_cast<uint64_t>(input.index));
  }
  return hash;
}

bool GraphClasses::same(const Graph& a, const Graph& b) {
  if (a.composite != b.composite || a.gradient.has_value() != b.gradient.has_value()) return false;
  if (a.gradient && of(*a.gradient) != of(*b.gradient)) return false;
  return equal_graphs(a, b, [&](const Op& one, const Op& other) { return same(one, other); });
}

GraphId GraphClasses::of(GraphId id) {
  const auto index = static_cast<size_t>(id.index);
  if (classes_.size() < module_.graphs.size()) classes_.resize(module_.graphs.size());
  if (classes_[index].index >= 0) return classes_[index];
  const Graph& graph = module_.graph(id);
  const uint64_t bucket = hash(graph);
  const std::vector<GraphId> candidates = first_of_class_[bucket];  // a copy: comparing may add classes
  const auto found = std::find_if(candidates.begin(), candidates.end(), [&](GraphId other) { return same(module_.graph(other), graph); });
  const GraphId result = found == candidates.end() ? id : *found;
  if (result == id) first_of_class_[bucket].push_back(id);
  return classes_[index] = result;
}

}  // namespace stepgraph
