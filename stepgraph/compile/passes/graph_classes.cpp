// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/graph_classes.h"

#include <algorithm>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/passes/op_hash.h"

namespace stepgraph {

Op GraphClasses::normal(const Op& op) {
  Op result = op;
  if (auto* call = std::get_if<Call>(&result)) call->graph = of(call->graph);
  if (auto* loop = std::get_if<Loop>(&result)) loop->body = of(loop->body);
  if (auto* map = std::get_if<MapTensors>(&result)) map->body = of(map->body);
  return result;
}

bool GraphClasses::same(const Op& a, const Op& b) {
  if (&a == &b) return true;
  if (a.index() != b.index()) return false;
  return is_control(a) ? normal(a) == normal(b) : a == b;
}

uint64_t GraphClasses::hash(const Op& op) { return is_control(op) ? op_hash(normal(op)) : op_hash(op); }

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
