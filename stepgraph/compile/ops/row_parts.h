// SPDX-License-Identifier: Apache-2.0
// What rows of the op table share: checks of types, sharding rules of simple form, costs, and elements of any dtype as f64 or i64.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

// ---- inference
/// Are the sizes equal, as far as this stage must know? At the Local stage sizes are expressions of coordinates of which equality may be undecidable:
/// there Unknown passes, and evaluation checks.
bool same_size(const Module& module, const Dim& a, const Dim& b);
bool same_shape(const Module& module, const Shape& a, const Shape& b);
/// UserError "add: shapes differ, f32[4] and f32[5]", with the ranges of symbols.
void check_same_shape(std::string_view op, const InferRequest& request, const TensorType& a, const TensorType& b);
void check_same_dtype(std::string_view op, const TensorType& a, const TensorType& b);
void check_floating(std::string_view op, const TensorType& type);
/// Each in [0, rank), ascending, none twice.
void check_dims(std::string_view op, const std::vector<int64_t>& dims, const TensorType& type);
void check_dim(std::string_view op, int64_t dim, const TensorType& type);
/// No dim may be negative for certain.
void check_sizes(std::string_view op, const Shape& shape, const Module& module);
/// " with batch in [1, 8]", or "" without symbols.
std::string ranges_of(const Module& module, const Shape& a, const Shape& b = {});

// ---- sharding rules
int add_factor(ShardingRule& rule, FactorKind kind, const Dim& size, ReduceKind reduce = ReduceKind::Sum);
using DimFactors = std::vector<std::vector<int>>;
/// One Parallel factor for each dim, shared by all operands and results (all of one shape); dims of size 1 have none.
ShardingRule elementwise_rule(const ShardingRequest& request, std::vector<std::vector<int>> linear_groups);
/// Indices 0 to count - 1.
std::vector<int> first_operands(size_t count);

// ---- costs
Dim bytes_of(std::span<const TensorType> types);
/// `flops` for each element of the first result; every operand and result is moved once.
Cost elementwise_cost(const CostRequest& request, int64_t flops);

// ---- elements
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
