// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/units.h"

#include <map>
#include <set>
#include <utility>

#include "stepgraph/compile/lower/map_form.h"

namespace stepgraph {
namespace {

bool is_of_backward(Phase phase) { return phase == Phase::Backward || phase == Phase::Recompute || phase == Phase::Sync; }

}  // namespace

std::vector<OrderUnit> linked_units(std::span<const Unit> units, const Graph& graph, const ValueUses& uses, std::span<const char> is_required) {
  std::map<int, std::vector<size_t>> readers;  // of states
  for (size_t u = 0; u < units.size(); ++u)
    for (const ValueId value : units[u].reads)
      if (uses.state_read[at(value)] >= 0) readers[uses.state_read[at(value)]].push_back(u);
  std::vector<OrderUnit> linked(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    const Unit& unit = units[u];
    std::set<size_t> reads, follows;
    for (const ValueId value : unit.reads)
      if (uses.unit_of[at(value)] >= 0) reads.insert(static_cast<size_t>(uses.unit_of[at(value)]));
    for (const ValueId value : unit.writes)
      if (const auto found = readers.find(uses.replaces[at(value)]); found != readers.end()) follows.insert(found->second.begin(), found->second.end());
    follows.erase(u);
    linked[u].position = unit.position;
    linked[u].reads.assign(reads.begin(), reads.end());
    linked[u].follows.assign(follows.begin(), follows.end());
    linked[u].is_update = unit.is_update;
    linked[u].is_required = !is_required.empty() && is_required[u] != 0;
    linked[u].is_backward_call = unit.node >= 0 && is_of_backward(graph.nodes[static_cast<size_t>(unit.node)].phase);
  }
  return linked;
}

std::vector<Unit> split_by_tensors(const Unit& whole, const Node& node, const std::function<bool(size_t)>& is_large,
                                   const std::function<ValueId(ValueId)>& leaf) {
  const auto all = static_cast<size_t>(std::get<MapTensors>(node.op).tensors);
  std::vector<std::vector<size_t>> cut(1);
  for (const size_t t : whole.tensors) {
    if (is_large(t))
      cut.emplace_back(1, t);
    else
      cut[0].push_back(t);
  }
  if (cut[0].empty()) cut.erase(cut.begin());
  std::vector<Unit> parts;
  for (std::vector<size_t>& tensors : cut) {
    Unit part = whole;
    std::set<ValueId> reads;
    for (const ValueId operand : operands_of_tensors(node, tensors)) reads.insert(leaf(operand));
    part.reads.assign(reads.begin(), reads.end());
    part.writes.clear();
    for (size_t output = 0; output < node.results.size() / all; ++output)
      for (const size_t t : tensors) part.writes.push_back(node.results[output * all + t]);
    part.tensors = std::move(tensors);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace stepgraph
