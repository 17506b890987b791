// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/batch_norm_uses.h"

#include <algorithm>
#include <set>

#include "stepgraph/compile/ops/composite/normalization.h"

namespace stepgraph {

std::vector<BatchNormUse> batch_norm_uses(const Module& module, GraphId graph) {
  std::vector<BatchNormUse> uses;
  std::set<GraphId> seen;
  const auto visit = [&](const auto& self, GraphId id) -> void {
    if (!seen.insert(id).second) return;
    const Graph& body = module.graph(id);
    for (const Node& node : body.nodes) {
      const auto* call = std::get_if<Call>(&node.op);
      if (call && is_batch_norm_training(module.graph(call->graph))) {
        BatchNormUse use{node.scope, values_per_channel(body.type(node.inputs.at(0)).shape)};
        if (node.place.known()) use.layer += (use.layer.empty() ? "at " : " (") + node.place.text() + (use.layer.empty() ? "" : ")");
        const auto same = [&](const BatchNormUse& other) { return other.layer == use.layer && other.values == use.values; };
        if (std::none_of(uses.begin(), uses.end(), same)) uses.push_back(std::move(use));
        continue;
      }
      for (const GraphId called : called_graphs(node.op)) self(self, called);
    }
  };
  visit(visit, graph);
  return uses;
}

void check_values_per_channel(const std::vector<BatchNormUse>& uses, const SymbolValues& symbols) {
  for (const BatchNormUse& use : uses)
    if (evaluate(use.values, symbols) == 1)
      throw UserError(
          "batch norm " + use.layer +
          " would see one value per channel, which has no variance to train with; wanted at least 2: give it more rows, or freeze it (evaluation mode)");
}

}  // namespace stepgraph
