// SPDX-License-Identifier: Apache-2.0
// What sharding propagation knows of a logical graph before any layout is chosen: computed once a graph, however often the graph is specialised.
#pragma once
#include <map>
#include <optional>
#include <vector>
#include "stepgraph/compile/passes/factor_splits.h"

namespace stepgraph {

struct NodeFacts {
  /// Empty for control. Of its linear groups only those are kept that hold for every value: partial sums times an infinity would give NaN where the whole
  /// sum times it does not, so what a float partial sum is multiplied with must be known to be finite, and not zero, since it may be divided by it.
  ShardingRule rule;
  std::vector<bool> splittable;
  /// Some result factor is in no operand (a broadcast, a source): the node can be made in any layout of it without communication.
  bool makes_new_dims = false;
};
struct GraphFacts {
  std::vector<NodeFacts> nodes;
  /// By value: a number of elements for comparing sizes where a choice is open: symbols count as a middling size of their range.
  std::vector<double> size;
  /// By value: all elements are zero, so the value is also its own partial sum over any axis.
  std::vector<bool> is_zero;
  /// By value: all elements are finite and not zero, for certain.
  std::vector<bool> is_finite;
  /// By value: some use is not linear, so a partial sum must be reduced anyway; best where it is made.
  std::vector<bool> must_be_whole;
  /// By graph input: the same question for callers.
  std::vector<bool> input_must_be_whole;
};

/// Facts of all graphs of a logical module, on demand.
class FactTable {
 public:
  explicit FactTable(const Module& module) : module_(module), facts_(module.graphs.size()) {}
  const GraphFacts& of(GraphId graph);

 private:
  GraphFacts compute(const Graph& graph);
  double middling_size(const Dim& dim);
  void note_values(const Graph& graph, const Node& node, GraphFacts& facts);
  void note_uses(const Graph& graph, GraphFacts& facts);
  const Module& module_;
  std::map<Dim, double> sizes_;  ///< of symbolic dims
  std::vector<std::optional<GraphFacts>> facts_;
};

}  // namespace stepgraph
