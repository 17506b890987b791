// SPDX-License-Identifier: Apache-2.0
// Elements by index: reads and writes.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>
#include "stepgraph/compile/ops/functions/at.h"

namespace stepgraph {

Value index_select(At x, int64_t dim, At indices);
Value index_add(At base, int64_t dim, At indices, At updates);
Value gather(At x, int64_t dim, At index);
Value scatter_add(At base, int64_t dim, At index, At updates);
/// base with result[index[i][j]][j] = updates[i][j] for dim 0, as torch.scatter; of repeated indices the last in row-major order wins.
Value scatter(At base, int64_t dim, At index, At updates);
/// torch's x[i, j, :, k]: an integer tensor or nothing for each leading dim; indices broadcast together, negative ones count from the end.
Value index(At x, const std::vector<std::optional<Value>>& indices);
/// base with base[indices] = values, or += with `accumulate` (repeated indices add).
Value index_put(At base, const std::vector<std::optional<Value>>& indices, At values, bool accumulate);
enum class BagKind : uint8_t { Sum, Mean, Max };
/// torch.nn.functional.embedding_bag: indices [n] with offsets [bags], or [bags, length] without.
Value embedding_bag(At weight, At indices, std::optional<Value> offsets, BagKind kind, std::optional<Value> per_sample_weights, bool include_last_offset,
                    std::optional<int64_t> padding_index);

}  // namespace stepgraph
