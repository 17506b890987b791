// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/canonicalize.h"

#include <utility>

#include "stepgraph/compile/passes/canonical_rewrites.h"
#include "stepgraph/compile/passes/slice_elements.h"

namespace stepgraph {

Module canonicalize(Module module) {
  static constexpr Rewrite before_selects[] = {sum_of_updates};
  static constexpr Rewrite rewrites[] = {
      drop_stop_gradient,      meet_movements,   multiply_by_reciprocal, reshape_after_elements,    transpose_after_elements, transpose_after_reshape,
      reduce_before_transpose, concatenate_pads, select_for_scatter,     gather_before_elements,    exchange_operands,        take_in_transposes,
      transpose_indices,       multiply_table,   multiply_windows,       add_by_transposed_indices, multiply_added_rows,      multiply_by_added_rows,
      scatter_into_sum,
  };
  module = rewrite_nodes(std::move(module), before_selects, [](const Op& op) { return std::holds_alternative<ScatterAdd>(op); });
  return slice_before_elements(rewrite_nodes(std::move(module), rewrites));
}

}  // namespace stepgraph
