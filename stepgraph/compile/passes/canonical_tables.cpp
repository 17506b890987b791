// SPDX-License-Identifier: Apache-2.0
// Gradients of rows read from a table and multiplied: with sums S = index_add(0, i, g) of the small table,
//   index_add(0, i, g W) = S W      and      g^T E[i] = S^T E.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/known_values.h"
#include "stepgraph/compile/passes/canonical_rewrites.h"
#include "stepgraph/compile/passes/usual_size.h"

namespace stepgraph {
namespace {

/// 0, 1, ..., count - 1 and nothing else.
bool is_leading(const std::vector<int64_t>& dims, int64_t count) {
  if (static_cast<int64_t>(dims.size()) != count) return false;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<int64_t>(i)) return false;
  return true;
}

/// Sums of rows of `updates` [indices..., rest...] as a table of `rows` rows.
Value summed_rows(Builder& builder, const Dim& rows, Value indices, Value updates) {
  Shape shape(updates.shape().begin() + indices.rank(), updates.shape().end());
  shape.insert(shape.begin(), rows);
  return builder.emit_one(IndexAdd{0}, {zeros(builder, {updates.dtype(), std::move(shape), {}}), indices, updates});
}

}  // namespace

bool has_fewer_rows(const NodeRewrite& node, Value table, Value indices) {
  const std::optional<int64_t> rows = usual_size(node.symbols(), table.shape()[0]), count = usual_size(node.symbols(), element_count(indices.shape()));
  return rows && count && *rows < *count;
}

Rewritten add_by_transposed_indices(const NodeRewrite& node) {
  const auto* add = std::get_if<IndexAdd>(&node.op);
  const auto* transpose = add == nullptr || add->dim != 0 ? nullptr : node.producer_op<Transpose>(node.inputs[2]);
  if (transpose == nullptr || !node.is_sole_use(node.inputs[2])) return std::nullopt;
  const auto rank = static_cast<size_t>(node.inputs[1].rank());
  for (size_t d = rank; d < transpose->permutation.size(); ++d)
    if (transpose->permutation[d] != static_cast<int64_t>(d)) return std::nullopt;
  std::vector<int64_t> back(rank);  // dim i of the untransposed updates is dim back[i] of the indices
  for (size_t d = 0; d < rank; ++d) back[static_cast<size_t>(transpose->permutation[d])] = static_cast<int64_t>(d);
  const Value updates = node.operand(node.inputs[2]);
  const Value indices = node.builder.emit_one(Transpose{back}, {node.inputs[1]});
  return {{node.builder.emit_one(*add, {node.inputs[0], indices, updates})}};
}

Rewritten multiply_added_rows(const NodeRewrite& node) {
  const auto* add = std::get_if<IndexAdd>(&node.op);
  const auto* product = add == nullptr || add->dim != 0 ? nullptr : node.producer_op<MatMul>(node.inputs[2]);
  if (product == nullptr || !node.is_sole_use(node.inputs[2]) || !product->lhs_batch.empty() || product->result_dtype) return std::nullopt;
  if (uniform_number(node.builder.graph(), node.inputs[0].id) != 0.0) return std::nullopt;
  const Value rows = node.inputs[0], indices = node.inputs[1], updates = node.operand(node.inputs[2], 0), weight = node.operand(node.inputs[2], 1);
  if (!has_fewer_rows(node, rows, indices)) return std::nullopt;
  MatMul of_sums = *product;
  for (int64_t& dim : of_sums.lhs_contract) {
    if (dim < indices.rank()) return std::nullopt;
    dim -= indices.rank() - 1;
  }
  return {{node.builder.emit_one(std::move(of_sums), {summed_rows(node.builder, rows.shape()[0], indices, updates), weight})}};
}

Rewritten multiply_by_added_rows(const NodeRewrite& node) {
  const auto* product = std::get_if<MatMul>(&node.op);
  if (product == nullptr || !product->lhs_batch.empty() || product->result_dtype) return std::nullopt;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const auto* select = node.producer_op<IndexSelect>(node.inputs[side]);
    if (select == nullptr || select->dim != 0) continue;
    const Value table = node.operand(node.inputs[side], 0), indices = node.operand(node.inputs[side], 1), other = node.inputs[1 - side];
    if (!is_leading(product->lhs_contract, indices.rank()) || !is_leading(product->rhs_contract, indices.rank())) continue;
    if (!has_fewer_rows(node, table, indices)) continue;
    const Value sums = summed_rows(node.builder, table.shape()[0], indices, other);
    const MatMul of_sums{{}, {}, {0}, {0}, {}};
    return {{side == 0 ? node.builder.emit_one(of_sums, {table, sums}) : node.builder.emit_one(of_sums, {sums, table})}};
  }
  return std::nullopt;
}

}  // namespace stepgraph
