// SPDX-License-Identifier: Apache-2.0
// Nodes that are no forms as instructions of a plan: library calls on strided windows of memory, collectives, and the reference interpreter for the rest.
#pragma once
#include <functional>
#include <optional>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/lower/element_reader.h"
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

struct CallRequest {
  const Module& module;
  const Graph& graph;
  const Node& node;
  const Target& target;
  /// A value as a window on memory; nothing for a view that is none.
  std::function<std::optional<StridedLeaf>(ValueId)> window;
  /// The buffer of a leaf or of a result.
  std::function<int(ValueId)> buffer;
};
struct LoweredCall {
  InstructionOp op;
  std::vector<ValueId> wants_stored;  ///< operands that it cannot take as they lie: the rest is of no use then
};
LoweredCall lower_call(const CallRequest& request);

/// All of a value in its own buffer.
View dense_view(int buffer, const Shape& shape);

}  // namespace stepgraph
