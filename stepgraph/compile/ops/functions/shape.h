// SPDX-License-Identifier: Apache-2.0
// Shape and movement of elements, none of which is changed.
#pragma once
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>
#include "stepgraph/compile/ops/functions/at.h"

namespace stepgraph {

/// NumPy broadcasting of x to `shape` (dims aligned at the end).
Value broadcast_to(At x, const Shape& shape);
/// Operand dim i goes to result dim dims[i].
Value broadcast_in_dim(At x, const Shape& shape, Dims dims);
Value reshape(At x, const Shape& shape);  ///< exact sizes; no -1 (see flatten, unflatten)
Value flatten(At x, int64_t first, int64_t last);
Value unflatten(At x, int64_t dim, const Shape& sizes);
Value squeeze(At x, Dims dims);
Value unsqueeze(At x, int64_t dim);
Value transpose(At x, int64_t a, int64_t b);  ///< swaps two dims
Value permute(At x, Dims permutation);
Value flip(At x, Dims dims);
Value slice(At x, int64_t dim, const Dim& start, const Dim& limit, int64_t stride = 1);
/// Drops `dim`, keeping element `index` (negative counts from the end).
Value select(At x, int64_t dim, int64_t index);
Value pad(At x, const Shape& low, const Shape& high, double value = 0);
Value concatenate(std::span<const Value> values, int64_t dim, std::source_location location = std::source_location::current());
std::vector<Value> split(At x, int64_t dim, int64_t parts);  ///< equal parts
Value roll(At x, int64_t dim, const Dim& shift);
/// Below (or above) the diagonal kept, the rest zero, in the last two dims.
Value triangle(At x, int64_t diagonal, bool lower);
/// mode: constant, reflect, replicate, circular. Negative amounts cut off.
Value pad_mode(At x, const Shape& low, const Shape& high, const std::string& mode, double value = 0);
/// x broadcast together with a tensor of that shape.
Value broadcast_pair(At x, const Shape& other);
Value pixel_shuffle(At x, int64_t factor);
Value pixel_unshuffle(At x, int64_t factor);

}  // namespace stepgraph
