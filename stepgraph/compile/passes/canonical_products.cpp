// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "stepgraph/compile/passes/canonical_rewrites.h"

namespace stepgraph {
namespace {

using DimList = std::vector<int64_t>;

bool is_in(const DimList& dims, int64_t dim) { return std::find(dims.begin(), dims.end(), dim) != dims.end(); }

DimList free_dims_of(int64_t rank, const DimList& batch, const DimList& contract) {
  DimList result;
  for (int64_t d = 0; d < rank; ++d)
    if (!is_in(batch, d) && !is_in(contract, d)) result.push_back(d);
  return result;
}

bool is_run(const DimList& dims) {
  for (size_t i = 1; i < dims.size(); ++i)
    if (dims[i] != dims[i - 1] + 1) return false;
  return true;
}

/// [batch, free, contract] or [batch, contract, free], each in order: what a library takes with a flag.
bool is_matrix_like(const DimList& batch, const DimList& free, const DimList& contract) {
  return is_run(batch) && is_run(free) && is_run(contract) && (batch.empty() || batch[0] == 0);
}

/// One side of a matmul, as it is or on the operand of its transpose.
struct Side {
  Value value;
  DimList batch, contract;

  /// Whether there is a transpose that the lists can take in.
  bool take_in(const NodeRewrite& node) {
    const auto* transpose = node.producer_op<Transpose>(value);
    if (transpose == nullptr) return false;
    const auto before = [&](DimList dims) {
      for (int64_t& dim : dims) dim = transpose->permutation[static_cast<size_t>(dim)];
      return dims;
    };
    const DimList new_batch = before(batch), new_contract = before(contract), new_free = before(free_dims_of(value.rank(), batch, contract));
    if (!is_matrix_like(new_batch, new_free, new_contract)) return false;
    value = node.operand(value), batch = new_batch, contract = new_contract;
    return true;
  }
};

}  // namespace

Rewritten exchange_operands(const NodeRewrite& node) {
  const auto* transpose = std::get_if<Transpose>(&node.op);
  const auto* product = transpose == nullptr ? nullptr : node.producer_op<MatMul>(node.inputs[0]);
  if (product == nullptr || !node.is_sole_use(node.inputs[0])) return std::nullopt;
  const Value lhs = node.operand(node.inputs[0], 0), rhs = node.operand(node.inputs[0], 1);
  const size_t batch = product->lhs_batch.size();
  const size_t left = static_cast<size_t>(lhs.rank()) - batch - product->lhs_contract.size();
  DimList wanted(transpose->permutation.size());
  std::iota(wanted.begin(), wanted.end(), int64_t{0});
  std::rotate(wanted.begin() + static_cast<std::ptrdiff_t>(batch), wanted.begin() + static_cast<std::ptrdiff_t>(batch + left), wanted.end());
  if (transpose->permutation != wanted) return std::nullopt;
  MatMul exchanged{product->rhs_batch, product->lhs_batch, product->rhs_contract, product->lhs_contract, product->result_dtype};
  return {{node.builder.emit_one(std::move(exchanged), {rhs, lhs})}};
}

Rewritten take_in_transposes(const NodeRewrite& node) {
  const auto* product = std::get_if<MatMul>(&node.op);
  if (product == nullptr) return std::nullopt;
  Side lhs{node.inputs[0], product->lhs_batch, product->lhs_contract}, rhs{node.inputs[1], product->rhs_batch, product->rhs_contract};
  const bool left = lhs.take_in(node), right = rhs.take_in(node);
  if (!left && !right) return std::nullopt;
  return {{node.builder.emit_one(MatMul{lhs.batch, rhs.batch, lhs.contract, rhs.contract, product->result_dtype}, {lhs.value, rhs.value})}};
}

Rewritten transpose_indices(const NodeRewrite& node) {
  const auto* transpose = std::get_if<Transpose>(&node.op);
  const auto* select = transpose == nullptr ? nullptr : node.producer_op<IndexSelect>(node.inputs[0]);
  if (select == nullptr || select->dim != 0 || !node.is_sole_use(node.inputs[0])) return std::nullopt;
  const Value table = node.operand(node.inputs[0], 0), indices = node.operand(node.inputs[0], 1);
  const auto rank = static_cast<size_t>(indices.rank());
  for (size_t d = rank; d < transpose->permutation.size(); ++d)
    if (transpose->permutation[d] != static_cast<int64_t>(d)) return std::nullopt;
  const DimList permutation(transpose->permutation.begin(), transpose->permutation.begin() + static_cast<std::ptrdiff_t>(rank));
  const Value transposed = node.builder.emit_one(Transpose{permutation}, {indices});
  return {{node.builder.emit_one(IndexSelect{0}, {table, transposed})}};
}

Rewritten multiply_table(const NodeRewrite& node) {
  const auto* product = std::get_if<MatMul>(&node.op);
  const auto* select = product == nullptr ? nullptr : node.producer_op<IndexSelect>(node.inputs[0]);
  if (select == nullptr || select->dim != 0 || !product->lhs_batch.empty()) return std::nullopt;
  const Value table = node.operand(node.inputs[0], 0), indices = node.operand(node.inputs[0], 1);
  if (!has_fewer_rows(node, table, indices)) return std::nullopt;
  MatMul of_table = *product;
  for (int64_t& dim : of_table.lhs_contract) {
    if (dim < indices.rank()) return std::nullopt;
    dim -= indices.rank() - 1;
  }
  const Value multiplied = node.builder.emit_one(std::move(of_table), {table, node.inputs[1]});
  return {{node.builder.emit_one(IndexSelect{0}, {multiplied, indices})}};
}

}  // namespace stepgraph
