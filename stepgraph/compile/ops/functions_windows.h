// SPDX-License-Identifier: Apache-2.0
// Windows as columns, sampling at positions that are values, and what undoes pooling: functions over images x [N, C, spatial...], as PyTorch's of these names.
#pragma once
#include "stepgraph/compile/ops/functions_more.h"

namespace stepgraph {

/// Two numbers each, for rows and columns.
struct Columns {
  std::vector<int64_t> size, strides, padding, dilation;
};
/// x [N, C, H, W] -> [N, C * window, positions]: each window as a column.
Value windows_to_columns(At x, const Columns& columns);
/// The transpose: columns are added up into [N, C, sizes].
Value columns_to_image(At x, const Shape& sizes, const Columns& columns);

enum class SampleKind : uint8_t { Linear, Nearest, Cubic };
enum class OutsideKind : uint8_t { Zeros, Border, Reflection };
/// x [N, C, spatial...] read at grid [N, positions..., spatial dims], whose coordinates run from -1 to 1 with the last spatial dim first.
Value grid_sample(At x, Value grid, SampleKind kind, OutsideKind outside, bool align_corners);
/// theta [N, spatial, spatial + 1] -> the grid that samples an image of `sizes` [N, C, spatial...].
Value affine_grid(At theta, const Shape& sizes, bool align_corners);

/// Writes each value at its linear index (as max_pool_with_indices gives) into zeros of the spatial sizes.
Value max_unpool(At x, Value indices, const Shape& sizes);

/// Resampling whose windows grow with the scale, so that shrinking averages (Linear or Cubic).
Value resize_antialiased(At x, ResizeKind kind, const Shape& sizes, bool align_corners, const std::vector<double>& scales);

/// Adaptive maximum over windows of unequal sizes.
MaxPooled adaptive_max_pool_uneven(At x, const std::vector<int64_t>& sizes);

}  // namespace stepgraph
