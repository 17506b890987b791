// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/cse.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "stepgraph/compile/passes/remap.h"

namespace stepgraph {
namespace {

/// Spreads nodes over buckets; equality decides. Sums up a large constant by its first and last bytes.
uint64_t bucket_of(const Node& node) {
  uint64_t hash = node.op.index();
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL, hash ^= hash >> 29; };
  for (char c : name(node.op)) mix(static_cast<unsigned char>(c));
  for (ValueId input : node.inputs) mix(static_cast<uint64_t>(input.index));
  if (const auto* constant = std::get_if<Constant>(&node.op)) {
    const Literal& value = constant->value;
    mix(static_cast<uint64_t>(value.dtype()));
    mix(static_cast<uint64_t>(value.count()));
    for (size_t i = 0; i < std::min<size_t>(value.byte_count(), 64); ++i) {
      mix(static_cast<uint64_t>(value.data()[i]));
      mix(static_cast<uint64_t>(value.data()[value.byte_count() - 1 - i]));
    }
  }
  if (const auto* size = std::get_if<SizeValue>(&node.op))
    for (char c : size->dim.text()) mix(static_cast<unsigned char>(c));
  return hash;
}

void merge(Graph& graph) {
  Remap remap(graph);
  std::unordered_map<uint64_t, std::vector<size_t>> buckets;  // looked up only, never iterated
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    remap.inputs(node);
    if (is_control(node.op) || is_collective(node.op)) continue;
    std::vector<size_t>& candidates = buckets[bucket_of(node)];
    const auto same = std::find_if(candidates.begin(), candidates.end(), [&](size_t other) {
      return graph.nodes[other].inputs == node.inputs && graph.nodes[other].op == node.op;
    });
    if (same == candidates.end()) {
      candidates.push_back(n);
      continue;
    }
    for (size_t i = 0; i < node.results.size(); ++i) remap.replace(node.results[i], graph.nodes[*same].results[i]);
  }
  remap.outputs(graph);
  remove_dead_nodes(graph);
}

}  // namespace

Module merge_common_subexpressions(Module module) {
  for (Graph& graph : module.graphs) merge(graph);
  return module;
}

}  // namespace stepgraph
