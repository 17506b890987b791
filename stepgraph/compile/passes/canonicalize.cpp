// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/canonicalize.h"

#include <utility>

#include "stepgraph/compile/passes/canonical_rewrites.h"

namespace stepgraph {

Module canonicalize(Module module) {
  static constexpr Rewrite rewrites[] = {
      drop_stop_gradient, multiply_by_reciprocal, reshape_after_elements, concatenate_pads, select_for_scatter, gather_before_elements,
      exchange_operands,  take_in_transposes,     transpose_indices,      multiply_table,   multiply_windows,
  };
  return rewrite_nodes(std::move(module), rewrites);
}

}  // namespace stepgraph
