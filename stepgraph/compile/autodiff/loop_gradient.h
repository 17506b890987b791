// SPDX-License-Identifier: Apache-2.0
// The backward of a Loop: a loop in the other direction over an iteration's backward. What that needs of the forward iteration is stacked by the forward
// loop; gradients of carried values are carried, those of scanned values come out stacked, those of invariants are summed over the iterations.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

using Gradients = std::vector<std::optional<Value>>;
/// gradients() of this walk, for a body's graph.
using Differentiate =
    std::function<Gradients(Builder& builder, std::span<const Value> ys, std::span<const std::optional<Value>> seeds, std::span<const Value> xs)>;

/// Gradients of the inputs of the Loop at `node_index`, which is changed to also return the stacked values. UserError if a value whose size depends on the
/// iteration would have to be stacked.
Gradients loop_gradient(Builder& outer, size_t node_index, const Gradients& result_gradients, const std::vector<bool>& needed,
                        const Differentiate& differentiate);

}  // namespace stepgraph
