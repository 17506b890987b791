// SPDX-License-Identifier: Apache-2.0
// A loop's invariant matrices as products take them best.
#pragma once
#include "stepgraph/compile/passes/canonical_rewrites.h"

namespace stepgraph {

/// An invariant matrix [n, k] of a Loop that is nothing but the right side of products along its last dim comes in as its transpose [k, n]: transposed once,
/// before the loop, and multiplied by rows in each iteration. Libraries are up to a third faster that way when the left side has few rows, as a recurrence's has.
Rewritten turn_loop_weights(const NodeRewrite& node);

}  // namespace stepgraph
