// SPDX-License-Identifier: Apache-2.0
// What is known of a value from the nodes that make it.
#pragma once
#include <optional>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Every element is zero for certain: a constant of zeros, spread, moved about or converted. Looks through a few nodes only, so that a chain of any length does
/// not cost its square.
bool is_zero(const Graph& graph, ValueId value);
/// The number that all elements have, of a constant of one element or a broadcast one.
std::optional<double> uniform_number(const Graph& graph, ValueId value);

}  // namespace stepgraph
