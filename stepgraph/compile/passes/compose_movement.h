// SPDX-License-Identifier: Apache-2.0
// Two movements of elements one after the other as one: broadcasts, reshapes, transposes, slices, and conversions that lose nothing on the way.
#pragma once
#include <optional>
#include <vector>
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/tensor/tensor_type.h"

namespace stepgraph {

/// The op that does to `operand` what `outer` does to the result of `inner` (of type `between`); nothing where it takes both. Exact.
std::optional<Op> compose_movement(const TensorType& operand, const Op& inner, const TensorType& between, const Op& outer);

/// For each dim of `from` that is not 1 the dim of `to` that it is, where the shapes differ in dims of size 1 alone; -1 for a dim of size 1.
std::optional<std::vector<int64_t>> match_without_ones(const Shape& from, const Shape& to);

}  // namespace stepgraph
