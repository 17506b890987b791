// SPDX-License-Identifier: Apache-2.0
// Scans that gradients of products and cumulative ops need. None divides, so a zero in x is a number like any other; all are made of functions with
// gradients, so they work for any order.
#pragma once
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

/// x moved by one along dim, away from the start (towards it with `reverse`), `fill` moving in.
Value shifted(const Value& x, int64_t dim, bool reverse, double fill);
/// Along dim, for each element the product of all the other elements.
Value product_of_others(const Value& x, int64_t dim);
/// s[k] = b[k] + a[k] * s[k + 1] along dim, s beyond the end being 0. By doubling: about log2(n) steps of whole-tensor products and sums.
Value linear_recurrence(Value a, Value b, int64_t dim);

/// Where the value of a running maximum or minimum (from the front) along dim was last met, as i64 indices.
Value running_position(const Value& x, const Value& running, int64_t dim);

}  // namespace stepgraph
