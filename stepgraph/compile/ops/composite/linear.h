// SPDX-License-Identifier: Apache-2.0
// Layers that look up or mix features by a weight, with PyTorch's weight layouts. Leading dims are kept as they are, never merged: a batch that is
// split unevenly over ranks stays a dim of its own.
#pragma once
#include <optional>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

/// x [..., in], weight [out, in], bias [out] -> [..., out].
Value linear(At x, Value weight, std::optional<Value> bias = std::nullopt);
/// indices (integer, any shape S), weight [count, width] -> S + [width]. An index outside [0, count) is a UserError when run.
Value embedding(At indices, Value weight);

}  // namespace stepgraph
