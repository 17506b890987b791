// SPDX-License-Identifier: Apache-2.0
// Images x [N, C, spatial...] of another size, or read at positions that are values; as PyTorch's of these names.
#pragma once
#include <cstdint>
#include <vector>
#include "stepgraph/compile/ops/functions/at.h"

namespace stepgraph {

enum class ResizeKind : uint8_t { Nearest, NearestExact, Linear, Cubic };
/// torch's upsample_*: to `sizes` of the spatial dims; `scales` as given by the caller, or empty.
Value resize(At x, ResizeKind kind, const Shape& sizes, bool align_corners, const std::vector<double>& scales);
/// Resampling whose windows grow with the scale, so that shrinking averages (Linear or Cubic).
Value resize_antialiased(At x, ResizeKind kind, const Shape& sizes, bool align_corners, const std::vector<double>& scales);

enum class SampleKind : uint8_t { Linear, Nearest, Cubic };
enum class OutsideKind : uint8_t { Zeros, Border, Reflection };
/// x [N, C, spatial...] read at grid [N, positions..., spatial dims], whose coordinates run from -1 to 1 with the last spatial dim first.
Value grid_sample(At x, Value grid, SampleKind kind, OutsideKind outside, bool align_corners);
/// theta [N, spatial, spatial + 1] -> the grid that samples an image of `sizes` [N, C, spatial...].
Value affine_grid(At theta, const Shape& sizes, bool align_corners);

}  // namespace stepgraph
