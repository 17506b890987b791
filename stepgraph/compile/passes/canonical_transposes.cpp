// SPDX-License-Identifier: Apache-2.0
// Transposes sink towards what takes them in: another transpose, a matmul.
#include <algorithm>
#include <numeric>

#include "stepgraph/compile/passes/canonical_rewrites.h"
#include "stepgraph/compile/passes/compose_movement.h"

namespace stepgraph {
namespace {

using Permutation = std::vector<int64_t>;

Permutation inverse_of(const Permutation& permutation) {
  Permutation result(permutation.size());
  for (size_t i = 0; i < result.size(); ++i) result[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  return result;
}

/// Dims [first, last) of one shape that are, together, the dims [to_first, to_last) of another.
struct DimGroup {
  size_t first, last, to_first, to_last;
};

/// The finest groups by which a reshape joins and splits dims, in order; nothing where sizes leave that open.
std::optional<std::vector<DimGroup>> reshape_groups(const Shape& from, const Shape& to) {
  std::vector<DimGroup> groups;
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    DimGroup group{i, i + 1, j, j + 1};
    Dim left = from[i++], right = to[j++];
    while (left != right) {
      // Whichever is the smaller one for certain takes another dim.
      if (i < from.size() && exact_quotient(right, left))
        left = left * from[i++];
      else if (j < to.size() && exact_quotient(left, right))
        right = right * to[j++];
      else
        return std::nullopt;
    }
    group.last = i, group.to_last = j;
    groups.push_back(group);
  }
  if (groups.empty() || i != from.size() || j != to.size()) return std::nullopt;
  return groups;
}

}  // namespace

Rewritten meet_movements(const NodeRewrite& node) {
  if (!std::holds_alternative<Transpose>(node.op)) return std::nullopt;
  const Node* inner = node.producer(node.inputs[0]);
  if (inner == nullptr || inner->inputs.size() != 1) return std::nullopt;
  const Value operand = node.operand(node.inputs[0]);
  const std::optional<Op> both = compose_movement(operand.type(), inner->op, node.inputs[0].type(), node.op);
  if (!both) return std::nullopt;
  const auto* transpose = std::get_if<Transpose>(&*both);
  if (transpose != nullptr && std::is_sorted(transpose->permutation.begin(), transpose->permutation.end())) return {{operand}};
  return {{node.builder.emit_one(*both, {operand})}};
}

Rewritten transpose_after_elements(const NodeRewrite& node) {
  if (!is_per_element(node.op)) return std::nullopt;
  std::optional<Permutation> permutation;
  for (const Value input : node.inputs)
    if (const auto* transpose = node.producer_op<Transpose>(input); transpose != nullptr && !permutation) permutation = transpose->permutation;
  if (!permutation) return std::nullopt;
  std::vector<std::optional<Op>> spread(node.inputs.size());  // of operands that are broadcasts
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value input = node.inputs[i];
    if (const auto* transpose = node.producer_op<Transpose>(input)) {
      if (transpose->permutation != *permutation || !node.is_sole_use(input)) return std::nullopt;
      continue;
    }
    const auto* broadcast = node.producer_op<Broadcast>(input);
    if (broadcast != nullptr) spread[i] = compose_movement(node.operand(input).type(), *broadcast, input.type(), Transpose{inverse_of(*permutation)});
    if (!spread[i]) return std::nullopt;
  }
  std::vector<Value> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value inner = node.operand(node.inputs[i]);
    operands.push_back(spread[i] ? node.builder.emit_one(*spread[i], {inner}) : inner);
  }
  return {{node.builder.emit_one(Transpose{*permutation}, {node.builder.emit(node.op, operands).at(0)})}};
}

Rewritten transpose_after_reshape(const NodeRewrite& node) {
  const auto* reshape = std::get_if<Reshape>(&node.op);
  const auto* transpose = reshape == nullptr ? nullptr : node.producer_op<Transpose>(node.inputs[0]);
  if (transpose == nullptr || !node.is_sole_use(node.inputs[0])) return std::nullopt;
  std::optional<std::vector<DimGroup>> groups = reshape_groups(node.inputs[0].shape(), reshape->shape);
  if (!groups) return std::nullopt;
  const Permutation& permutation = transpose->permutation;
  for (const DimGroup& group : *groups)
    for (size_t d = group.first + 1; d < group.last; ++d)
      if (permutation[d] != permutation[d - 1] + 1) return std::nullopt;
  // The same groups in the order in which they lie in the operand.
  std::sort(groups->begin(), groups->end(), [&](const DimGroup& a, const DimGroup& b) { return permutation[a.first] < permutation[b.first]; });
  Shape shape;
  Permutation after(reshape->shape.size());
  for (const DimGroup& group : *groups) {
    for (size_t d = group.to_first; d < group.to_last; ++d) {
      after[d] = static_cast<int64_t>(shape.size());
      shape.push_back(reshape->shape[d]);
    }
  }
  const Value reshaped = node.builder.emit_one(Reshape{std::move(shape)}, {node.operand(node.inputs[0])});
  return {{node.builder.emit_one(Transpose{std::move(after)}, {reshaped})}};
}

Rewritten reduce_before_transpose(const NodeRewrite& node) {
  const auto* reduce = std::get_if<Reduce>(&node.op);
  const auto* transpose = reduce == nullptr ? nullptr : node.producer_op<Transpose>(node.inputs[0]);
  if (transpose == nullptr) return std::nullopt;
  Reduce inner{reduce->kind, {}};
  for (const int64_t dim : reduce->dims) inner.dims.push_back(transpose->permutation[static_cast<size_t>(dim)]);
  std::sort(inner.dims.begin(), inner.dims.end());
  Permutation kept;  // dims of the operand, in the order of the result
  for (size_t d = 0; d < transpose->permutation.size(); ++d)
    if (!std::binary_search(inner.dims.begin(), inner.dims.end(), transpose->permutation[d])) kept.push_back(transpose->permutation[d]);
  if (!std::is_sorted(kept.begin(), kept.end())) return std::nullopt;
  return {{node.builder.emit_one(std::move(inner), {node.operand(node.inputs[0])})}};
}

}  // namespace stepgraph
