// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/kernels/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "stepgraph/base/error.h"

namespace stepgraph {

namespace {

template <class T>
const T* elements(const Literal& literal, int64_t first) {
  return reinterpret_cast<const T*>(literal.data()) + first;
}

template <class T, class To>
void load_as(const Literal& from, int64_t first, int64_t count, To* to) {
  const T* source = elements<T>(from, first);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(source[i]);
}

template <class T>
void store_low_bits(std::byte* to, int64_t count, const int64_t* from) {
  T* target = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) target[i] = static_cast<T>(from[i]);
}

/// Truncates towards zero and saturates; NaN gives 0.
template <class T>
void store_truncated(std::byte* to, int64_t count, const double* from) {
  T* target = reinterpret_cast<T*>(to);
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());  // 2^63 for i64: not below the bound, so it saturates too
  for (int64_t i = 0; i < count; ++i) {
    const double value = from[i];
    if (value != value) target[i] = 0;
    else if (value <= low) target[i] = std::numeric_limits<T>::min();
    else if (value >= high) target[i] = std::numeric_limits<T>::max();
    else target[i] = static_cast<T>(value);
  }
}

}  // namespace

void load_elements(const Literal& from, int64_t first, int64_t count, double* to) {
  switch (from.dtype()) {
    case DType::F64: load_as<double>(from, first, count, to); break;
    case DType::F32: load_as<float>(from, first, count, to); break;
    case DType::BF16: {
      const uint16_t* source = elements<uint16_t>(from, first);
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(bf16_to_f32(source[i]));
      break;
    }
    case DType::F16: {
      const uint16_t* source = elements<uint16_t>(from, first);
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(f16_to_f32(source[i]));
      break;
    }
    case DType::I64: load_as<int64_t>(from, first, count, to); break;
    case DType::I32: load_as<int32_t>(from, first, count, to); break;
    case DType::I8: load_as<int8_t>(from, first, count, to); break;
    case DType::U8: load_as<uint8_t>(from, first, count, to); break;
    case DType::Bool: {
      const uint8_t* source = elements<uint8_t>(from, first);
      for (int64_t i = 0; i < count; ++i) to[i] = source[i] != 0 ? 1.0 : 0.0;
      break;
    }
  }
}

void load_elements(const Literal& from, int64_t first, int64_t count, int64_t* to) {
  switch (from.dtype()) {
    case DType::I64: load_as<int64_t>(from, first, count, to); break;
    case DType::I32: load_as<int32_t>(from, first, count, to); break;
    case DType::I8: load_as<int8_t>(from, first, count, to); break;
    case DType::U8: load_as<uint8_t>(from, first, count, to); break;
    case DType::Bool: {
      const uint8_t* source = elements<uint8_t>(from, first);
      for (int64_t i = 0; i < count; ++i) to[i] = source[i] != 0 ? 1 : 0;
      break;
    }
    case DType::F64: case DType::F32: case DType::BF16: case DType::F16:
      for (int64_t i = 0; i < count; ++i) to[i] = from.integer_at(first + i);
      break;
  }
}

void store_elements(DType dtype, std::byte* to, int64_t count, const double* from) {
  switch (dtype) {
    case DType::F64: std::copy_n(from, count, reinterpret_cast<double*>(to)); break;  // not memcpy: both may be null for no elements
    case DType::F32: {
      auto* target = reinterpret_cast<float*>(to);
      for (int64_t i = 0; i < count; ++i) target[i] = static_cast<float>(from[i]);
      break;
    }
    case DType::BF16: {
      auto* target = reinterpret_cast<uint16_t*>(to);
      for (int64_t i = 0; i < count; ++i) target[i] = f64_to_bf16(from[i]);
      break;
    }
    case DType::F16: {
      auto* target = reinterpret_cast<uint16_t*>(to);
      for (int64_t i = 0; i < count; ++i) target[i] = f64_to_f16(from[i]);
      break;
    }
    case DType::I64: store_truncated<int64_t>(to, count, from); break;
    case DType::I32: store_truncated<int32_t>(to, count, from); break;
    case DType::I8: store_truncated<int8_t>(to, count, from); break;
    case DType::U8: store_truncated<uint8_t>(to, count, from); break;
    case DType::Bool: {
      auto* target = reinterpret_cast<uint8_t*>(to);
      for (int64_t i = 0; i < count; ++i) target[i] = from[i] != 0;
      break;
    }
  }
}

void store_elements(DType dtype, std::byte* to, int64_t count, const int64_t* from) {
  switch (dtype) {
    case DType::I64: std::copy_n(from, count, reinterpret_cast<int64_t*>(to)); break;
    case DType::I32: store_low_bits<int32_t>(to, count, from); break;
    case DType::I8: store_low_bits<int8_t>(to, count, from); break;
    case DType::U8: store_low_bits<uint8_t>(to, count, from); break;
    case DType::Bool: {
      auto* target = reinterpret_cast<uint8_t*>(to);
      for (int64_t i = 0; i < count; ++i) target[i] = from[i] != 0;
      break;
    }
    case DType::F32: {
      // Straight from the integer: a way through f64 would round an i64 twice.
      auto* target = reinterpret_cast<float*>(to);
      for (int64_t i = 0; i < count; ++i) target[i] = static_cast<float>(from[i]);
      break;
    }
    case DType::F64: case DType::BF16: case DType::F16:
      for (int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<double>(from[i]);
        store_elements(dtype, to + static_cast<size_t>(i) * size_bytes(dtype), 1, &value);
      }
      break;
  }
}

Sizes sizes_of(const TensorType& type) {
  Sizes sizes;
  sizes.reserve(type.shape.size());
  for (const Dim& dim : type.shape) sizes.push_back(dim.constant());
  return sizes;
}

Sizes row_major_strides(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

Blocks blocks_of(const Sizes& sizes, int64_t dim) {
  Blocks blocks;
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t& part = static_cast<int64_t>(d) < dim ? blocks.outer : static_cast<int64_t>(d) == dim ? blocks.size : blocks.inner;
    part *= sizes[d];
  }
  return blocks;
}

StridedLoops joined_loops(const Sizes& sizes, std::vector<Sizes> strides) {
  StridedLoops loops;
  loops.strides.resize(strides.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    bool joins = !loops.sizes.empty();
    for (size_t k = 0; joins && k < strides.size(); ++k) joins = loops.strides[k].back() == strides[k][d] * sizes[d];
    if (joins) {
      loops.sizes.back() *= sizes[d];
    } else {
      loops.sizes.push_back(sizes[d]);
    }
    for (size_t k = 0; k < strides.size(); ++k) {
      if (joins) loops.strides[k].back() = strides[k][d];
      else loops.strides[k].push_back(strides[k][d]);
    }
  }
  if (loops.sizes.empty()) {
    loops.sizes.push_back(1);
    for (Sizes& operand : loops.strides) operand.push_back(0);
  }
  return loops;
}

namespace {

template <class T>
void copy_run(const std::byte* from, std::byte* to, int64_t count, int64_t from_stride, int64_t to_stride) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  if (from_stride == 1 && to_stride == 1) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  else if (from_stride == 0 && to_stride == 1) std::fill_n(target, count, *source);
  else {
    for (int64_t i = 0; i < count; ++i) target[i * to_stride] = source[i * from_stride];
  }
}

/// Last two dims in squares, so that both sides stay in cache when their orders differ.
template <class T>
void copy_tile(const std::byte* from, std::byte* to, int64_t rows, int64_t columns, int64_t from_row, int64_t from_column, int64_t to_row, int64_t to_column) {
  constexpr int64_t tile = 32;
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (int64_t r0 = 0; r0 < rows; r0 += tile) {
    for (int64_t c0 = 0; c0 < columns; c0 += tile) {
      for (int64_t r = r0; r < std::min(r0 + tile, rows); ++r) {
        for (int64_t c = c0; c < std::min(c0 + tile, columns); ++c) target[r * to_row + c * to_column] = source[r * from_row + c * from_column];
      }
    }
  }
}

template <class T>
void copy_loops(const std::byte* from, std::byte* to, const StridedLoops& loops) {
  const size_t last = loops.sizes.size() - 1;
  const int64_t from_stride = loops.strides[0][last], to_stride = loops.strides[1][last];
  const bool contiguous = to_stride == 1 && (from_stride == 1 || from_stride == 0);
  if (last > 0 && !contiguous) {
    // The last dim of this walk is one row of tiles.
    StridedLoops outer = loops;
    outer.sizes[last] = 1;
    const size_t row = last - 1;
    const int64_t rows = outer.sizes[row];
    outer.sizes[row] = std::min<int64_t>(rows, 1);
    for_each_run(outer, [&](const std::vector<int64_t>& offsets) {
      copy_tile<T>(from + offsets[0] * static_cast<int64_t>(sizeof(T)), to + offsets[1] * static_cast<int64_t>(sizeof(T)), rows, loops.sizes[last],
                   loops.strides[0][row], from_stride, loops.strides[1][row], to_stride);
    });
    return;
  }
  for_each_run(loops, [&](const std::vector<int64_t>& offsets) {
    copy_run<T>(from + offsets[0] * static_cast<int64_t>(sizeof(T)), to + offsets[1] * static_cast<int64_t>(sizeof(T)), loops.sizes[last], from_stride, to_stride);
  });
}

}  // namespace

void copy_strided(const std::byte* from, std::byte* to, size_t width, const Sizes& sizes, const Sizes& from_strides, const Sizes& to_strides) {
  const StridedLoops loops = joined_loops(sizes, {from_strides, to_strides});
  switch (width) {
    case 1: copy_loops<uint8_t>(from, to, loops); break;
    case 2: copy_loops<uint16_t>(from, to, loops); break;
    case 4: copy_loops<uint32_t>(from, to, loops); break;
    case 8: copy_loops<uint64_t>(from, to, loops); break;
    default: SG_CHECK(false, "no element is that wide");
  }
}

}  // namespace stepgraph
