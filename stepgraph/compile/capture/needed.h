// SPDX-License-Identifier: Apache-2.0
// What some outputs of a graph depend on, seen through calls: a composite that returns two values may need only one operand for one of them.
#pragma once
#include <optional>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// Which inputs the marked outputs depend on.
std::vector<bool> needed_inputs(const Module& module, const Graph& graph, const std::vector<bool>& outputs);
/// Appends only what the marked outputs need; a call of which a part is needed is inlined. Inputs that are not needed may be absent. Outputs that are not
/// marked are absent.
std::vector<std::optional<Value>> inline_needed(Builder& builder, const Graph& graph, const std::vector<std::optional<Value>>& inputs,
                                                const std::vector<bool>& outputs);

}  // namespace stepgraph
