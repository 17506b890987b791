// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation: appends the backward nodes of one graph to that same graph, so that it can be applied again for second derivatives.
// The walk knows control (Call, Loop); everything else is the op table's `gradient`.
//
// Through a Call the callee is differentiated once for each (graph, which results have gradients, which inputs need them): the forward call is replaced
// by one that also returns the values its backward needs, and a call of the backward graph is appended; a layer that is called 48 times has one backward.
// A composite with a gradient graph of its own uses that. Through a Loop the needed values are stacked over the iterations and a loop in the other
// direction is appended.
#pragma once
#include <optional>
#include <span>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// d(sum over i of seeds[i] * ys[i]) / d xs[j], of the type of xs[j]. Absent where no differentiable path leads from xs[j] to any ys: an unused parameter
/// has no gradient, which is not a gradient of zero. A missing seed is one, for a scalar y only (UserError otherwise). Each use of a value adds once.
std::vector<std::optional<Value>> gradients(Builder& builder, std::span<const Value> ys, std::span<const std::optional<Value>> seeds,
                                            std::span<const Value> xs);
/// Of one scalar.
std::vector<std::optional<Value>> gradients(Builder& builder, Value y, std::span<const Value> xs);

}  // namespace stepgraph
