// SPDX-License-Identifier: Apache-2.0
// Sliding windows: what convolution and pooling check alike.
#pragma once
#include <string_view>
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

/// UserError unless there is one stride, padding and dilation for each of `dims` spatial dims, strides and dilations are at least 1 and paddings at least 0.
void check_window(std::string_view op, const Window& window, size_t dims);
/// Number of positions along spatial dim d of x [batch, channels, spatial...]: floordiv(size + padding - extent, stride) + 1. UserError when the window
/// surely does not fit.
Dim window_result(std::string_view op, const Window& window, size_t d, const TensorType& x, const Dim& size, const Module& module);

}  // namespace stepgraph
