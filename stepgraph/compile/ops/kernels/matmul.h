// SPDX-License-Identifier: Apache-2.0
// Matrix products by plain loops in f64 (or wrapping i64): panels are packed, a 4 x 8 tile of sums stays in registers. Each element is one sequential sum
// over k from first to last with no fused multiply-add, so its bits are the same on every machine. Blocking after Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication" (TOMS 2008).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>
#include "stepgraph/tensor/dtype.h"

namespace stepgraph {

/// Element (i, j) is at data + row[i] + column[j], counted in elements. The rows of a and the columns of b ascend.
struct MatrixView {
  const std::byte* data = nullptr;
  DType dtype = DType::F64;
  const std::vector<int64_t>* row = nullptr;
  const std::vector<int64_t>* column = nullptr;
};
/// Memory that a sequence of products uses again.
struct MatMulSpace {
  std::vector<double> a, b, c;
  std::vector<uint64_t> integer_a, integer_b, integer_c;
};
/// result[i * columns + j] = sum over k of a(i, k) * b(k, j), rounded once to `dtype`. All dtypes floating, or all one integer dtype. With `add`, which
/// wants a result of f64, the sum goes on from the value that is there.
void multiply(const MatrixView& a, const MatrixView& b, std::byte* result, DType dtype, MatMulSpace& space, bool add = false);

}  // namespace stepgraph
