// SPDX-License-Identifier: Apache-2.0
// A look at memory for numbers that are none, at the speed of reading it.
#pragma once
#include <cstddef>
#include <cstdint>
#include "stepgraph/tensor/dtype.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// True of integers.
bool all_finite(DType dtype, const std::byte* elements, int64_t count);
inline bool all_finite(const Literal& value) { return all_finite(value.dtype(), value.data(), value.count()); }

}  // namespace stepgraph
