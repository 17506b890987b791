// SPDX-License-Identifier: Apache-2.0
// A block of nodes that repeats itself, as a graph and its calls: the second half of outline_repeats.
#pragma once
#include <string>
#include <vector>
#include "stepgraph/compile/passes/graph_classes.h"

namespace stepgraph {

/// Nodes of a graph that belong to blocks, in order, and how far their values are read. Constants, Iotas and SizeValues are not among them.
struct BlockSequence {
  explicit BlockSequence(const Graph& graph);
  std::vector<size_t> nodes;      ///< indices in graph.nodes
  std::vector<size_t> place;      ///< by node of the graph: its position in `nodes`; `none` for a source
  std::vector<size_t> last_user;  ///< by value: position of the last node that reads it; nodes.size() for an output of the graph; 0 for none
  static constexpr size_t none = SIZE_MAX;
};
bool is_source(const Op& op);

/// `count` blocks of `period` nodes of a sequence, one after the other.
struct BlockGroup {
  size_t start = 0, period = 0, count = 0;
};
struct BlockCall {
  std::vector<ValueId> arguments, results;  ///< of the flat graph
  std::string scope;
};
struct OutlinedBlocks {
  Graph body;
  std::vector<BlockCall> calls;
};
/// The blocks must be the same (outline_repeats.h). The body's name is that of the blocks' scope without their numbers.
OutlinedBlocks outline_blocks(const Graph& graph, const BlockSequence& sequence, const BlockGroup& group, GraphClasses& classes);

/// Components that both scopes begin with: 1 for "h.0.attn" and "h.1".
size_t common_scope(const std::string& a, const std::string& b);

}  // namespace stepgraph
