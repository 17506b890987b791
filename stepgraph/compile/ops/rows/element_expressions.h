// SPDX-License-Identifier: Apache-2.0
// The column `element` of the op table: each op that has one, in the order of op.h.
#pragma once
#include "stepgraph/compile/ops/element.h"

namespace stepgraph {

std::optional<int> constant_element(const ElementRequest& request);  ///< of one value throughout
std::optional<int> iota_element(const ElementRequest& request);
std::optional<int> size_value_element(const ElementRequest& request);
std::optional<int> random_element(const ElementRequest& request);
std::optional<int> fold_in_element(const ElementRequest& request);
std::optional<int> unary_element(const ElementRequest& request);
std::optional<int> binary_element(const ElementRequest& request);
std::optional<int> compare_element(const ElementRequest& request);
std::optional<int> select_element(const ElementRequest& request);
std::optional<int> convert_element(const ElementRequest& request);
std::optional<int> stop_gradient_element(const ElementRequest& request);
std::optional<int> reduce_element(const ElementRequest& request);
std::optional<int> arg_reduce_element(const ElementRequest& request);
std::optional<int> moments_element(const ElementRequest& request);
std::optional<int> broadcast_element(const ElementRequest& request);
std::optional<int> reshape_element(const ElementRequest& request);
std::optional<int> transpose_element(const ElementRequest& request);
std::optional<int> reverse_element(const ElementRequest& request);
std::optional<int> slice_element(const ElementRequest& request);
std::optional<int> pad_element(const ElementRequest& request);  ///< without padding between neighbours
std::optional<int> concatenate_element(const ElementRequest& request);
std::optional<int> index_select_element(const ElementRequest& request);
std::optional<int> gather_element(const ElementRequest& request);

}  // namespace stepgraph
