// SPDX-License-Identifier: Apache-2.0
// Replacement of values while a pass walks a graph once, in order.
#pragma once
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

class Remap {
 public:
  explicit Remap(const Graph& graph) {
    map_.reserve(graph.values.size());
    for (size_t i = 0; i < graph.values.size(); ++i) map_.push_back({static_cast<int32_t>(i)});
  }
  ValueId of(ValueId value) const { return map_[static_cast<size_t>(value.index)]; }
  /// Users of `from` met later use `to`.
  void replace(ValueId from, ValueId to) { map_[static_cast<size_t>(from.index)] = of(to); }
  void inputs(Node& node) const {
    for (ValueId& input : node.inputs) input = of(input);
  }
  void outputs(Graph& graph) const {
    for (GraphOutput& output : graph.outputs) output.value = of(output.value);
  }

 private:
  std::vector<ValueId> map_;
};

/// `from` by `to`, which keeps the record of its layout, or takes that of `from` if it has none (a value that a rewrite made).
inline void replace_value(Graph& graph, Remap& remap, ValueId from, ValueId to) {
  std::optional<Sharding>& record = graph.values[at(to)].type.sharding;
  if (!record) record = graph.type(from).sharding;
  remap.replace(from, to);
}

}  // namespace stepgraph
