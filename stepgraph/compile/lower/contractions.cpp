// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/contractions.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace stepgraph {
namespace {

/// Dims of one element do not count.
bool lie_side_by_side(const Shape& shape, const std::vector<int64_t>& dims) {
  int64_t last = -1;
  for (const int64_t dim : dims) {
    if (shape[static_cast<size_t>(dim)] == Dim(1)) continue;
    for (int64_t between = last + 1; last >= 0 && between < dim; ++between)
      if (shape[static_cast<size_t>(between)] != Dim(1)) return false;
    if (dim < last) return false;
    last = dim;
  }
  return true;
}

/// The operand with its contracted dims last, in their order.
ValueId with_contracted_last(Graph& graph, std::vector<Node>& nodes, const Node& product, ValueId operand, std::vector<int64_t>& batch,
                             std::vector<int64_t>& contract) {
  const Shape shape = graph.type(operand).shape;
  const auto is_contracted = [&](int64_t d) { return std::find(contract.begin(), contract.end(), d) != contract.end(); };
  Transpose op;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
    if (!is_contracted(d)) op.permutation.push_back(d);
  op.permutation.insert(op.permutation.end(), contract.begin(), contract.end());
  TensorType type{graph.type(operand).dtype, {}, {}};
  for (const int64_t d : op.permutation) type.shape.push_back(shape[static_cast<size_t>(d)]);
  if (const auto& sharding = graph.type(operand).sharding) {
    type.sharding = sharding;
    for (size_t d = 0; d < shape.size(); ++d) type.sharding->dims[d] = sharding->dims[static_cast<size_t>(op.permutation[d])];
  }
  for (int64_t& d : batch) d = std::find(op.permutation.begin(), op.permutation.end(), d) - op.permutation.begin();
  std::iota(contract.begin(), contract.end(), static_cast<int64_t>(shape.size() - contract.size()));
  graph.values.push_back({std::move(type), -1});
  const ValueId result{static_cast<int32_t>(graph.values.size()) - 1};
  Node node;
  node.op = std::move(op), node.inputs = {operand}, node.results = {result};
  node.phase = product.phase, node.scope = product.scope;
  nodes.push_back(std::move(node));
  return result;
}

void join_in(Graph& graph) {
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    if (auto* product = std::get_if<MatMul>(&node.op)) {
      if (!lie_side_by_side(graph.type(node.inputs[0]).shape, product->lhs_contract))
        node.inputs[0] = with_contracted_last(graph, nodes, node, node.inputs[0], product->lhs_batch, product->lhs_contract);
      if (!lie_side_by_side(graph.type(node.inputs[1]).shape, product->rhs_contract))
        node.inputs[1] = with_contracted_last(graph, nodes, node, node.inputs[1], product->rhs_batch, product->rhs_contract);
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  number_producers(graph);
}

}  // namespace

Module join_contracted_dims(Module flat) {
  for (Graph& graph : flat.graphs) join_in(graph);
  return flat;
}

}  // namespace stepgraph
