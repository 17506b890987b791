// SPDX-License-Identifier: Apache-2.0
// Graphs and ops that do the same but for which random numbers they draw.
#pragma once
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

class GraphClasses {
 public:
  /// Graphs may be added to the module while this lives.
  explicit GraphClasses(const Module& module);
  /// Equal attributes but for the id and path of a Random, the site of a Call or Loop, and the graphs that they run, which are of one class. A Random whose
  /// id and path another node of the module has, too, equals itself alone: the two may draw the same numbers, which must stay so.
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
  using Draw = std::pair<int64_t, std::vector<int64_t>>;
  static Draw draw_of(const Random& random) { return {random.id, random.path}; }
  std::map<Draw, int> random_uses_;
  std::vector<GraphId> classes_;
  std::unordered_map<uint64_t, std::vector<GraphId>> first_of_class_;  // by hash; looked up only
};

}  // namespace stepgraph
