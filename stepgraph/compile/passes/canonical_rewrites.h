// SPDX-License-Identifier: Apache-2.0
// The rewrites of canonicalize.h, one function each; the first lines there say what they do.
#pragma once
#include "stepgraph/compile/passes/rewrite.h"

namespace stepgraph {

using Rewritten = std::optional<std::vector<Value>>;

// canonical_elements.cpp
Rewritten drop_stop_gradient(const NodeRewrite& node);
Rewritten multiply_by_reciprocal(const NodeRewrite& node);
Rewritten reshape_after_elements(const NodeRewrite& node);
Rewritten concatenate_pads(const NodeRewrite& node);
// canonical_indexing.cpp
Rewritten select_for_scatter(const NodeRewrite& node);
Rewritten gather_before_elements(const NodeRewrite& node);
Rewritten sum_of_updates(const NodeRewrite& node);
Rewritten scatter_into_sum(const NodeRewrite& node);
// canonical_transposes.cpp
Rewritten meet_movements(const NodeRewrite& node);
Rewritten transpose_after_elements(const NodeRewrite& node);
Rewritten transpose_after_reshape(const NodeRewrite& node);
Rewritten reduce_before_transpose(const NodeRewrite& node);
// canonical_products.cpp
Rewritten exchange_operands(const NodeRewrite& node);
Rewritten take_in_transposes(const NodeRewrite& node);
Rewritten transpose_indices(const NodeRewrite& node);
Rewritten multiply_table(const NodeRewrite& node);
// canonical_tables.cpp
/// Whether a product of the table costs less than one of the rows that are read from it, at the sizes that are likely (usual_size.h).
bool has_fewer_rows(const NodeRewrite& node, Value table, Value indices);
Rewritten add_by_transposed_indices(const NodeRewrite& node);
Rewritten multiply_added_rows(const NodeRewrite& node);
Rewritten multiply_by_added_rows(const NodeRewrite& node);
// canonical_windows.cpp
Rewritten multiply_windows(const NodeRewrite& node);

}  // namespace stepgraph
