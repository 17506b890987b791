// SPDX-License-Identifier: Apache-2.0
// Nodes that are no forms as instructions of a plan: calls on strided windows of memory, collectives, and the reference interpreter for the rest.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/lower/element_reader.h"
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// Where a value lies: its first element in a buffer, and a stride for each dim.
struct ValuePlace {
  int buffer = -1;
  Dim offset = 0;
  std::vector<Dim> strides = {};
};

struct CallRequest {
  const Module& module;
  const Graph& graph;
  const Node& node;
  /// A value as a window on memory; nothing for a view that is none.
  std::function<std::optional<StridedLeaf>(ValueId)> window;
  /// Where a leaf or a result lies.
  std::function<ValuePlace(ValueId)> place;
};
struct LoweredCall {
  InstructionOp op;
  std::vector<ValueId> wants_stored;  ///< operands that it cannot take as they lie: the rest is of no use then
  std::vector<ValueId> reads;         ///< leaves
};
/// An EvaluateCall has no program yet.
LoweredCall lower_call(const CallRequest& request);
/// EvaluateCall::program: the node as a module of its own, with the graphs that it runs.
std::string node_program(const Module& module, const Graph& graph, const Node& node);

/// All of a value in its own buffer.
View dense_view(int buffer, const Shape& shape);

}  // namespace stepgraph
