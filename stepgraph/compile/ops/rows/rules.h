// SPDX-License-Identifier: Apache-2.0
// Sharding rules of simple form, and costs, that several rows share.
#pragma once
#include <cstdint>
#include <span>
#include <vector>
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

// ---- sharding rules
int add_factor(ShardingRule& rule, FactorKind kind, const Dim& size, ReduceKind reduce = ReduceKind::Sum);
using DimFactors = std::vector<std::vector<int>>;
/// One Parallel factor for each dim, shared by all operands and results (all of one shape); dims of size 1 have none.
ShardingRule elementwise_rule(const ShardingRequest& request, std::vector<std::vector<int>> linear_groups);
/// Indices 0 to count - 1.
std::vector<int> first_operands(size_t count);

// ---- costs
Dim bytes_of(std::span<const TensorType> types);
/// No flops: every operand and result is moved once.
Cost transfer_cost(const CostRequest& request);
/// `flops` for each element of the first result; every operand and result is moved once.
Cost elementwise_cost(const CostRequest& request, int64_t flops);

}  // namespace stepgraph
