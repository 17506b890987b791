// SPDX-License-Identifier: Apache-2.0
// More functions over Values, with PyTorch's semantics and names: composed from the primitives of functions.h, or of ops with rows of their own.
#pragma once
#include <string>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

// ---- element-wise
Value trunc(At x);  ///< gradient zero
/// Remainder with the sign of the dividend; gradient 1 and -trunc(a / b).
Value fmod(At a, At b);

// ---- reductions
/// The p-norm over dims (none: all); p may be 0 or infinite. Gradient 0 where an element or the whole norm is 0, as PyTorch's.
Value vector_norm(At x, double p, Dims dims, bool keep_dims = false);

// ---- order
struct Sorted {
  Value values, indices;  ///< indices i64
};
/// Stable; NaN counts as the largest. The gradient goes to the elements by their index.
Sorted sort(At x, int64_t dim, bool descending = false);
/// The k largest (or smallest) along dim, in order.
Sorted topk(At x, int64_t k, int64_t dim, bool largest = true);

// ---- writes by index
/// base with result[index[i][j]][j] = updates[i][j] for dim 0, as torch.scatter; of repeated indices the last in row-major order wins.
Value scatter(At base, int64_t dim, At index, At updates);
/// torch's x[i, j, :, k]: an integer tensor or nothing for each leading dim; indices broadcast together, negative ones count from the end.
Value index(At x, const std::vector<std::optional<Value>>& indices);
/// base with base[indices] = values, or += with `accumulate` (repeated indices add).
Value index_put(At base, const std::vector<std::optional<Value>>& indices, At values, bool accumulate);

// ---- movement
Value roll(At x, int64_t dim, int64_t shift);
/// Below (or above) the diagonal kept, the rest zero, in the last two dims.
Value triangle(At x, int64_t diagonal, bool lower);
/// mode: constant, reflect, replicate, circular. Negative amounts cut off.
Value pad_mode(At x, const Shape& low, const Shape& high, const std::string& mode, double value = 0);
/// x broadcast together with a tensor of that shape.
Value broadcast_pair(At x, const Shape& other);
Value pixel_shuffle(At x, int64_t factor);
Value pixel_unshuffle(At x, int64_t factor);
/// torch.einsum over any number of operands; letters, ellipsis, sums over letters that the result has not, repeated letters in an operand (diagonals).
Value einsum(const std::string& equation, std::span<const Value> operands);

// ---- pooling and resampling: x [N, C, spatial...] (or without N, as PyTorch)
struct MaxPooled {
  Value values, indices;
};
MaxPooled max_pool_with_indices(At x, PoolOptions options, bool ceil_mode);
/// divisor 0: the size of the window (see count_include_pad).
Value average_pool_mode(At x, PoolOptions options, bool ceil_mode, int64_t divisor);
Value adaptive_average_pool(At x, const std::vector<int64_t>& sizes);
MaxPooled adaptive_max_pool(At x, const std::vector<int64_t>& sizes);  ///< window i of m over n elements: floor(i n / m) to ceil((i + 1) n / m)
enum class ResizeKind : uint8_t { Nearest, NearestExact, Linear, Cubic };
/// torch's upsample_*: to `sizes` of the spatial dims; `scales` as given by the caller, or empty.
Value resize(At x, ResizeKind kind, const Shape& sizes, bool align_corners, const std::vector<double>& scales);

// ---- embeddings
enum class BagKind : uint8_t { Sum, Mean, Max };
/// torch.nn.functional.embedding_bag: indices [n] with offsets [bags], or [bags, length] without.
Value embedding_bag(At weight, At indices, std::optional<Value> offsets, BagKind kind, std::optional<Value> per_sample_weights, bool include_last_offset,
                    std::optional<int64_t> padding_index);

}  // namespace stepgraph
