// SPDX-License-Identifier: Apache-2.0
// Reductions, scans, order.
#pragma once
#include <cstdint>
#include "stepgraph/compile/ops/functions/at.h"

namespace stepgraph {

// ---- reductions. Empty `dims` = none given: reduce all.
Value reduce(ReduceKind kind, At x, Dims dims, bool keep_dims = false);
Value sum(At x, Dims dims = {}, bool keep_dims = false);
Value prod(At x, Dims dims = {}, bool keep_dims = false);
Value amax(At x, Dims dims = {}, bool keep_dims = false);
Value amin(At x, Dims dims = {}, bool keep_dims = false);
Value any(At x, Dims dims = {}, bool keep_dims = false);
Value all(At x, Dims dims = {}, bool keep_dims = false);
Value mean(At x, Dims dims = {}, bool keep_dims = false);
struct MeanVariance {
  Value mean, variance;
};
MeanVariance moments(At x, Dims dims, bool keep_dims = false);
Value argmax(At x, int64_t dim, bool keep_dims = false);
Value argmin(At x, int64_t dim, bool keep_dims = false);
Value cumsum(At x, int64_t dim, bool reverse = false);
Value cumprod(At x, int64_t dim, bool reverse = false);
Value logcumsumexp(At x, int64_t dim, bool reverse = false);
/// The p-norm over dims (none: all); p may be 0 or infinite. Gradient 0 where an element or the whole norm is 0, as PyTorch's.
Value vector_norm(At x, double p, Dims dims, bool keep_dims = false);

// ---- order
struct Sorted {
  Value values, indices;  ///< indices i64
};
/// Stable; NaN counts as the largest. The gradient goes to the elements by their index.
Sorted sort(At x, int64_t dim, bool descending = false);
/// Elements that the op Pick takes along dim, with their places.
Sorted pick(At x, PickKind kind, int64_t count, int64_t dim);
/// The k largest (or smallest) along dim, in order.
Sorted topk(At x, int64_t k, int64_t dim, bool largest = true);

}  // namespace stepgraph
