// SPDX-License-Identifier: Apache-2.0
// What the interpreter works out once for a graph: where values die, and which symbols a node's attributes and result types hold. Also the bytes of the
// values that are alive.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

/// A node's op and result types with symbols replaced, kept while the symbols' values stay the same.
struct NodePlan {
  const OpInfo* info = nullptr;
  std::vector<std::string> symbols;  // of attributes and result types
  std::vector<ValueId> last_uses;    // values that die here
  std::vector<int64_t> bound_with;
  bool is_bound = false;
  Op op;
  std::vector<TensorType> results;
  std::vector<int> group;  // of a collective
};
struct GraphPlan {
  std::vector<NodePlan> nodes;
  std::vector<ValueId> unused_inputs;
};
GraphPlan plan_graph(const Graph& graph);

/// Binds the node if its symbols have changed. UserError naming a symbol without a value.
void bind_node(NodePlan& plan, const Graph& graph, const Node& node, const SymbolValues& values);

class LiveBytes {
 public:
  void add(const Literal& value);
  void remove(const Literal& value);
  int64_t peak() const { return peak_; }
  void reset() { bytes_ = 0, references_.clear(); }  // after a run that ended in an error

 private:
  std::unordered_map<const std::byte*, int64_t> references_;  // by storage; never iterated
  int64_t bytes_ = 0, peak_ = 0;
};

}  // namespace stepgraph
