// SPDX-License-Identifier: Apache-2.0
// What some outputs of a graph depend on, seen through calls: a composite that returns two values may need only one operand for one of them.
#pragma once
#include <optional>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// Which inputs the marked outputs depend on.
std::vector<bool> needed_inputs(const Module& module, const Graph& graph, const std::vector<bool>& outputs);
/// Appends copies of only what the marked outputs need; of a call of which a part is needed, a call of a graph that holds that part. Inputs that are not needed
/// may be absent. Outputs that are not marked are absent.
std::vector<std::optional<Value>> copy_needed(Builder& builder, const Graph& graph, const std::vector<std::optional<Value>>& inputs,
                                              const std::vector<bool>& outputs);

}  // namespace stepgraph
