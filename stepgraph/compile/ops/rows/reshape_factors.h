// SPDX-License-Identifier: Apache-2.0
// The sharding rule of reshape: the factors that both shapes have in common, major to minor.
#pragma once
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

/// [B, T] -> [B*T]: factors b, t; the merged dim is b t. [6, 2] -> [4, 3]: a common factor 2 in front; what is left of 6 and 4 are Replicate factors.
/// A dim of several factors may be split on its first one only; its sharding then has the product of the others as grain.
ShardingRule reshape_rule(const ShardingRequest& request);

}  // namespace stepgraph
