// SPDX-License-Identifier: Apache-2.0
// A function of one or two elements, over whole literals of any dtype.
//
// Values go through blocks of f64 or i64, whatever the dtype. For + - * / and sqrt of f32, bf16 and f16 the f64 result rounded once is the correctly
// rounded one, since f64 has more than twice their mantissa bits. An operand of one element stands for all (bodies of MapTensors have scalar constants).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include "stepgraph/compile/ops/kernels/elements.h"

namespace stepgraph {

template <class T>
bool lies_as(DType dtype) {
  if constexpr (std::is_same_v<T, double>) return dtype == DType::F64;
  if constexpr (std::is_same_v<T, float>) return dtype == DType::F32;
  if constexpr (std::is_same_v<T, int64_t>) return dtype == DType::I64;
}

/// Blocks of an operand as T: where they lie if they are T already; one element fills a block once.
template <class T>
class OperandBlocks {
 public:
  OperandBlocks(const Literal& literal, int64_t count) : literal_(literal), repeats_(literal.count() == 1 && count != 1), direct_(lies_as<T>(literal.dtype())) {
    if (!repeats_) return;
    std::fill_n(block_, element_block, *read(0, 1));
  }
  const T* load(int64_t first, int64_t count) { return repeats_ ? block_ : read(first, count); }

 private:
  const T* read(int64_t first, int64_t count) {
    if (direct_) return reinterpret_cast<const T*>(literal_.data()) + first;
    if constexpr (!std::is_same_v<T, float>) load_elements(literal_, first, count, block_);
    return block_;
  }
  const Literal& literal_;
  bool repeats_, direct_;
  T block_[element_block];
};

/// Fills the result block by block: fill(first, count, out) writes `count` values of R.
template <class R, class Fill>
void for_each_block(Literal& result, Fill fill) {
  const bool direct = lies_as<R>(result.dtype());
  R block[element_block];
  std::byte* data = result.mutable_data();
  for (int64_t first = 0; first < result.count(); first += element_block) {
    const int64_t count = std::min(element_block, result.count() - first);
    std::byte* target = data + static_cast<size_t>(first) * size_bytes(result.dtype());
    fill(first, count, direct ? reinterpret_cast<R*>(target) : block);
    if constexpr (!std::is_same_v<R, float>) {
      if (!direct) store_elements(result.dtype(), target, count, block);
    }
  }
}

/// What a function's values are kept as before they are stored: bool as i64.
template <class R>
using Kept = std::conditional_t<std::is_same_v<R, bool>, int64_t, R>;

/// Reads T, writes the function's result.
template <class T, class F>
void map_one(const Literal& x, Literal& result, F f) {
  using R = Kept<std::invoke_result_t<F, T>>;
  OperandBlocks<T> xs(x, result.count());
  for_each_block<R>(result, [&](int64_t first, int64_t count, R* out) {
    const T* a = xs.load(first, count);
    for (int64_t i = 0; i < count; ++i) out[i] = f(a[i]);
  });
}

template <class T, class F>
void map_two(const Literal& x, const Literal& y, Literal& result, F f) {
  using R = Kept<std::invoke_result_t<F, T, T>>;
  OperandBlocks<T> xs(x, result.count()), ys(y, result.count());
  for_each_block<R>(result, [&](int64_t first, int64_t count, R* out) {
    const T* a = xs.load(first, count);
    const T* b = ys.load(first, count);
    for (int64_t i = 0; i < count; ++i) out[i] = f(a[i], b[i]);
  });
}

}  // namespace stepgraph
