// SPDX-License-Identifier: Apache-2.0
// How far rounding may move the outputs of a module: the allowance for another way to compute the same, from its dtypes and its depth.
#pragma once
#include <span>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph::testing {

/// For each output of the graph the largest absolute difference, over its elements, that is allowed. The graph is run several times in f64 with noise: each result
/// of an operation that rounds, and each operand of one that adds up, is off by a normal draw times the rounding unit of its dtype. What that does to an
/// output, times a constant, is what rounding may do to it; where it cannot be told (nothing finite is left) nothing is allowed but equal bits.
std::vector<double> allowed_differences(const Module& module, GraphId graph, std::span<const Literal> inputs, const SymbolValues& symbols);

/// "" if each element is within `allowed` of the oracle's, integers and bools to the bit, NaN and infinities where the oracle has them; else the worst one.
std::string compare_within(const Literal& found, const Literal& wanted, double allowed);

}  // namespace stepgraph::testing
