// SPDX-License-Identifier: Apache-2.0
// Composites on f16 and bf16 are computed in f32 and rounded once, as PyTorch's kernels do.
#pragma once
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

inline Value narrowed(const Value& x, DType dtype) { return convert(x, dtype); }

/// The step from 1 to the next number of a floating dtype.
inline double spacing_at_one(DType dtype) {
  if (dtype == DType::F64) return 0x1p-52;
  if (dtype == DType::BF16) return 0x1p-7;
  return dtype == DType::F16 ? 0x1p-10 : 0x1p-23;
}

}  // namespace stepgraph
