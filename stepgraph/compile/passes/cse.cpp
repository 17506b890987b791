// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/cse.h"

#include <algorithm>
#include <unordered_map>

#include "stepgraph/compile/passes/op_hash.h"
#include "stepgraph/compile/passes/remap.h"

namespace stepgraph {
namespace {

uint64_t bucket_of(const Node& node) {
  uint64_t hash = op_hash(node.op);
  for (ValueId input : node.inputs) hash = mix_hash(hash, static_cast<uint64_t>(input.index));
  return hash;
}

void merge(Graph& graph) {
  Remap remap(graph);
  std::unordered_map<uint64_t, std::vector<size_t>> buckets;  // looked up only, never iterated
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    remap.inputs(node);
    if (is_collective(node.op)) continue;
    std::vector<size_t>& candidates = buckets[bucket_of(node)];
    const auto same = std::find_if(candidates.begin(), candidates.end(),
                                   [&](size_t other) { return graph.nodes[other].inputs == node.inputs && graph.nodes[other].op == node.op; });
    if (same == candidates.end()) {
      candidates.push_back(n);
      continue;
    }
    for (size_t i = 0; i < node.results.size(); ++i) replace_value(graph, remap, node.results[i], graph.nodes[*same].results[i]);
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
