// SPDX-License-Identifier: Apache-2.0
// Graphs and ops that do the same, though the module holds them twice.
#pragma once
#include <unordered_map>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

class GraphClasses {
 public:
  /// Graphs may be added to the module while this lives.
  explicit GraphClasses(const Module& module) : module_(module) {}
  /// Equal attributes but for the graphs that they run, which are of one class.
  bool same(const Op& a, const Op& b);
  /// Equal for ops that are the same.
  uint64_t hash(const Op& op);
  /// The first graph that is the same as this one.
  GraphId of(GraphId graph);

 private:
  bool same(const Graph& a, const Graph& b);
  uint64_t hash(const Graph& graph);
  Op normal(const Op& op);

  const Module& module_;
  std::vector<GraphId> classes_;
  std::unordered_map<uint64_t, std::vector<GraphId>> first_of_class_;  // by hash; looked up only
};

}  // namespace stepgraph
