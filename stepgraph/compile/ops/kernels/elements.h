// SPDX-License-Identifier: Apache-2.0
// Elements of any dtype as f64 or i64, and walks over strided tensors: what the oracle's loops are made of.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>
#include "stepgraph/tensor/literal.h"
#include "stepgraph/tensor/tensor_type.h"

namespace stepgraph {

/// Elements [first, first + count) as f64 or as i64 (integers and bool; floats truncate).
void load_elements(const Literal& from, int64_t first, int64_t count, double* to);
void load_elements(const Literal& from, int64_t first, int64_t count, int64_t* to);
/// One rounding; integers keep their low bits; bool is `!= 0`.
void store_elements(DType dtype, std::byte* to, int64_t count, const double* from);
void store_elements(DType dtype, std::byte* to, int64_t count, const int64_t* from);
/// Elements in one go, through a buffer of this many.
inline constexpr int64_t element_block = 512;

/// Sizes of a type whose Dims are all constants.
Sizes sizes_of(const TensorType& type);
Sizes row_major_strides(const Sizes& sizes);
/// A tensor as [outer, size of dim, inner].
struct Blocks {
  int64_t outer = 1, size = 1, inner = 1;
};
Blocks blocks_of(const Sizes& sizes, int64_t dim);
/// Wrapping arithmetic without undefined behaviour.
inline int64_t wrap_add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
inline int64_t wrap_subtract(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b)); }
inline int64_t wrap_multiply(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

/// A strided walk over `sizes`: neighbouring dims are joined where all operands allow, the last dim is a run. strides[k] are operand k's, in elements.
struct StridedLoops {
  Sizes sizes;
  std::vector<Sizes> strides;
};
StridedLoops joined_loops(const Sizes& sizes, std::vector<Sizes> strides);
/// Calls body(offsets) for each run of the last dim, offsets[k] being operand k's element offset. Nothing when a size is 0.
template <class Body>
void for_each_run(const StridedLoops& loops, Body body) {
  const size_t outer = loops.sizes.size() - 1;
  for (int64_t size : loops.sizes) {
    if (size == 0) return;
  }
  std::vector<int64_t> index(outer, 0), offsets(loops.strides.size(), 0);
  while (true) {
    body(offsets);
    size_t d = outer;
    while (d > 0) {
      --d;
      for (size_t k = 0; k < offsets.size(); ++k) offsets[k] += loops.strides[k][d];
      if (++index[d] < loops.sizes[d]) break;
      for (size_t k = 0; k < offsets.size(); ++k) offsets[k] -= loops.strides[k][d] * loops.sizes[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}
/// Copies a strided view of elements of `width` bytes to a dense row-major result.
void copy_strided(const std::byte* from, std::byte* to, size_t width, const Sizes& sizes, const Sizes& from_strides, const Sizes& to_strides);

}  // namespace stepgraph
