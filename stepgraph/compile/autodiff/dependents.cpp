// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/autodiff/dependents.h"

#include <algorithm>

#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {
namespace {

}  // namespace

void mark_dependents(const Graph& graph, size_t nodes, std::vector<bool>& marked) {
  for (size_t n = 0; n < nodes; ++n) {
    const Node& node = graph.nodes[n];
    if (std::holds_alternative<StopGradient>(node.op) || !op_info(node.op).differentiable) continue;
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) { return marked[at(input)]; })) continue;
    for (ValueId result : node.results)
      if (is_floating(graph.type(result).dtype)) marked[at(result)] = true;
  }
}

}  // namespace stepgraph
