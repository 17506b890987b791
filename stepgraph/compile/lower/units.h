// SPDX-License-Identifier: Apache-2.0
// Units of a graph, as lowering makes them: what is run as one, a group of nodes or a node, or the part of a MapTensors that is over some of its tensors.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/lower/unit_order.h"

namespace stepgraph {

struct Unit {
  int group = -1, node = -1;           ///< one of them
  int position = 0;                    ///< in the program: of its last node
  std::vector<ValueId> reads, writes;  ///< leaves; values that it puts into memory
  std::vector<size_t> tensors;         ///< of a MapTensors: those that are its own
  bool is_update = false;              ///< it writes states
};
/// Of each value of the graph, or -1.
struct ValueUses {
  std::span<const int> unit_of;     ///< the unit that makes it
  std::span<const int> state_read;  ///< the state that it is
  std::span<const int> replaces;    ///< the state whose new value it is
};
/// How units hang together. `is_required` by unit; empty: none is.
std::vector<OrderUnit> linked_units(std::span<const Unit> units, const Graph& graph, const ValueUses& uses, std::span<const char> is_required);
/// A unit of a MapTensors cut into one of all tensors that are not large, if there are such, and one of each that is. `leaf`: the value in memory that an
/// operand is a view of.
std::vector<Unit> split_by_tensors(const Unit& whole, const Node& node, const std::function<bool(size_t)>& is_large,
                                   const std::function<ValueId(ValueId)>& leaf);

}  // namespace stepgraph
