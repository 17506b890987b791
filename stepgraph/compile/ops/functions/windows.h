// SPDX-License-Identifier: Apache-2.0
// Windows that slide over images x [N, C, spatial...]: convolution, pooling, windows as columns.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>
#include "stepgraph/compile/ops/functions/at.h"

namespace stepgraph {

/// `same` strides etc. for all spatial dims.
struct ConvolutionOptions {
  std::vector<int64_t> strides = {}, padding = {}, dilation = {};  ///< empty: 1, 0, 1; one number: for all spatial dims
  int64_t groups = 1;
};
/// bias [O] is added before the result is rounded.
Value convolution(At x, At weight, const ConvolutionOptions& options = {}, std::optional<Value> bias = std::nullopt);
/// weight [C, O/groups, window...], as torch.nn.functional.conv_transpose.
Value convolution_transpose(At x, At weight, const ConvolutionOptions& options, std::vector<int64_t> output_padding = {}, std::optional<Value> bias = std::nullopt);
struct PoolOptions {
  std::vector<int64_t> size = {}, strides = {}, padding = {}, dilation = {};  ///< strides empty: size
  bool count_include_pad = true;
};
Value max_pool(At x, const PoolOptions& options);
Value average_pool(At x, const PoolOptions& options);
/// From places in windows, as a maximum pool gives them: linear indices (i64) into the spatial dims of x, of that shape.
Value elements_of_windows(const Pool& pool, At places, const Shape& shape);

// ---- pooling as PyTorch defines it: x [N, C, spatial...] (or without N)
struct MaxPooled {
  Value values, indices;
};
MaxPooled max_pool_with_indices(At x, PoolOptions options, bool ceil_mode);
/// divisor 0: the size of the window (see count_include_pad).
Value average_pool_mode(At x, PoolOptions options, bool ceil_mode, int64_t divisor);
Value adaptive_average_pool(At x, const std::vector<int64_t>& sizes);
MaxPooled adaptive_max_pool(At x, const std::vector<int64_t>& sizes);  ///< window i of m over n elements: floor(i n / m) to ceil((i + 1) n / m)
/// Adaptive maximum over windows of unequal sizes.
MaxPooled adaptive_max_pool_uneven(At x, const std::vector<int64_t>& sizes);
/// Writes each value at its linear index (as max_pool_with_indices gives) into zeros of the spatial sizes.
Value max_unpool(At x, Value indices, const Shape& sizes);

// ---- windows as columns
/// Two numbers each, for rows and columns.
struct Columns {
  std::vector<int64_t> size, strides, padding, dilation;
};
/// x [N, C, H, W] -> [N, C * window, positions]: each window as a column.
Value windows_to_columns(At x, const Columns& columns);
/// The transpose: columns are added up into [N, C, sizes].
Value columns_to_image(At x, const Shape& sizes, const Columns& columns);

}  // namespace stepgraph
