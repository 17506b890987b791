// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/rows/rules.h"

#include <numeric>

namespace stepgraph {

int add_factor(ShardingRule& rule, FactorKind kind, const Dim& size, ReduceKind reduce) {
  rule.factors.push_back({kind, size, reduce});
  return static_cast<int>(rule.factors.size()) - 1;
}

ShardingRule elementwise_rule(const ShardingRequest& request, std::vector<std::vector<int>> linear_groups) {
  ShardingRule rule;
  const Shape& shape = request.results[0].shape;
  DimFactors dims;
  for (const Dim& size : shape) {
    dims.emplace_back();
    if (size != Dim(1)) dims.back().push_back(add_factor(rule, FactorKind::Parallel, size));
  }
  rule.operands.assign(request.inputs.size(), dims);
  rule.results.assign(request.results.size(), dims);
  rule.linear_groups = std::move(linear_groups);
  return rule;
}

std::vector<int> first_operands(size_t count) {
  std::vector<int> result;
  for (size_t i = 0; i < count; ++i) result.push_back(static_cast<int>(i));
  return result;
}

// ---- costs

Dim bytes_of(std::span<const TensorType> types) {
  Dim bytes = 0;
  for (const TensorType& type : types) bytes = bytes + element_count(type.shape) * static_cast<int64_t>(size_bytes(type.dtype));
  return bytes;
}

Cost transfer_cost(const CostRequest& request) { return {0, bytes_of(request.inputs) + bytes_of(request.results)}; }

Cost elementwise_cost(const CostRequest& request, int64_t flops) {
  return {element_count(request.results[0].shape) * flops, bytes_of(request.inputs) + bytes_of(request.results)};
}

}  // namespace stepgraph
