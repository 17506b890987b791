// SPDX-License-Identifier: Apache-2.0
// Activations, softmax and dropout as composites. They work on any shape; f16 and bf16 are computed in f32 and rounded once at the end.
#pragma once
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

/// exp(x - max) / sum over `dim`. A row of -inf alone gives NaN, as in PyTorch; see safe_softmax.
Value softmax(At x, int64_t dim);
/// As softmax, but a row in which everything is -inf gives zeros (and no gradient): attention where a mask leaves nothing.
Value safe_softmax(At x, int64_t dim);
/// x - max - log(sum(exp(x - max))): finite wherever x is.
Value log_softmax(At x, int64_t dim);

enum class GeluKind : uint8_t { Exact, Tanh };
/// x * Phi(x) (Hendrycks, Gimpel, 2016), by erf or by its tanh approximation.
Value gelu(At x, GeluKind kind = GeluKind::Exact);
/// x * sigmoid(x).
Value silu(At x);
Value mish(At x);  ///< x tanh(log(1 + e^x))

/// silu(gate) * up: the gate of a feed-forward part (Shazeer, 2020).
Value swiglu(At gate, At up);

/// Zero with probability `rate`, else x / (1 - rate). `seed` and `step` are i64 scalars; each call in a model draws its own mask. Rate 0 is x itself,
/// rate 1 is zeros. UserError for a rate outside [0, 1].
Value dropout(At x, double rate, Value key);

}  // namespace stepgraph
