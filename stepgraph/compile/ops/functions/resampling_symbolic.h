// SPDX-License-Identifier: Apache-2.0
// Resampling between sizes of which one is a symbol: positions and weights are computed in the program.
#pragma once
#include "stepgraph/compile/ops/functions/resampling.h"
#include "stepgraph/compile/ops/functions/windows.h"

namespace stepgraph {

/// `dim` of x resampled to `to` elements. given_scale: the factor that PyTorch was given, or 0.
Value resize_symbolic(const Value& x, int64_t dim, const Dim& to, ResizeKind kind, bool align_corners, double given_scale);
/// Means of windows: output i covers floor(i n / m) to ceil((i + 1) n / m).
Value adaptive_average_symbolic(const Value& x, int64_t dim, int64_t to);

/// The largest of the same windows over the last dims, and where in those dims taken as one it is.
MaxPooled adaptive_max_symbolic(const Value& x, const std::vector<int64_t>& sizes);

}  // namespace stepgraph
