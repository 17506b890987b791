// SPDX-License-Identifier: Apache-2.0
// By which indices of the data a form reads, as values of a graph, and the range that each has to be in: whatever the sizes are what program/held_indices.h
// proves of some.
#pragma once
#include <optional>
#include <span>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/program/form.h"

namespace stepgraph {

struct RangedIndex {
  ValueId value;           ///< in memory
  Dim bound;               ///< it has to be in [0, bound)
  bool holds_all = false;  ///< if one of its elements is not, that is found here
};
/// `operands`: of the form's operands what they hold, row-major; `sizes`: of its symbols. Nothing if an index does not lie in memory.
std::optional<std::vector<RangedIndex>> ranged_indices(const Form& form, std::span<const ValueId> operands, std::span<const Dim> sizes, const Graph& graph,
                                                       const SymbolTable& symbols);
/// Whether an index is in its range since others were held to theirs.
bool is_held(const RangedIndex& index, std::span<const RangedIndex> held, const SymbolTable& symbols);

}  // namespace stepgraph
