// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/kernels/matmul.h"

#include <algorithm>
#include <cstring>

#include "stepgraph/base/error.h"

// One more instruction set for the inner loop, chosen at load time. No FMA: with it the bits would differ from machine to machine. The sanitizers' run
// time is not ready when such a choice is made.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define STEPGRAPH_WITH_AVX2
#else
#define STEPGRAPH_WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#endif
#else
#define STEPGRAPH_WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#endif
#else
#define STEPGRAPH_WITH_AVX2
#endif

namespace stepgraph {
namespace {

constexpr int64_t tile_rows = 4, tile_columns = 8;
constexpr int64_t block_rows = 64, block_inner = 256, block_columns = 256;  // of a packed block
constexpr int64_t block_result_rows = 1024;                                 // rows of sums held at once

typedef double Lanes __attribute__((vector_size(32), aligned(32)));

/// sums[tile] += a panel * b panel for all pairs of panels. a: row panels of inner x 4, b: column panels of inner x 8, sums: tiles of 4 x 8, row-major.
STEPGRAPH_WITH_AVX2 void multiply_panels(const double* a, const double* b, double* sums, int64_t row_panels, int64_t column_panels, int64_t stride,
                                         int64_t inner) {
  for (int64_t i = 0; i < row_panels; ++i) {
    for (int64_t j = 0; j < column_panels; ++j) {
      auto* sum = reinterpret_cast<Lanes*>(sums + (i * stride + j) * tile_rows * tile_columns);
      const double* pa = a + i * inner * tile_rows;
      const auto* pb = reinterpret_cast<const Lanes*>(b + j * inner * tile_columns);
      Lanes s00 = sum[0], s01 = sum[1], s10 = sum[2], s11 = sum[3], s20 = sum[4], s21 = sum[5], s30 = sum[6], s31 = sum[7];
      for (int64_t k = 0; k < inner; ++k, pa += tile_rows, pb += 2) {
        const Lanes b0 = pb[0], b1 = pb[1];
        const Lanes a0 = {pa[0], pa[0], pa[0], pa[0]}, a1 = {pa[1], pa[1], pa[1], pa[1]};
        s00 += a0 * b0, s01 += a0 * b1, s10 += a1 * b0, s11 += a1 * b1;
        const Lanes a2 = {pa[2], pa[2], pa[2], pa[2]}, a3 = {pa[3], pa[3], pa[3], pa[3]};
        s20 += a2 * b0, s21 += a2 * b1, s30 += a3 * b0, s31 += a3 * b1;
      }
      sum[0] = s00, sum[1] = s01, sum[2] = s10, sum[3] = s11, sum[4] = s20, sum[5] = s21, sum[6] = s30, sum[7] = s31;
    }
  }
}

/// The same for integers, which wrap.
void multiply_panels(const uint64_t* a, const uint64_t* b, uint64_t* sums, int64_t row_panels, int64_t column_panels, int64_t stride, int64_t inner) {
  for (int64_t i = 0; i < row_panels; ++i) {
    for (int64_t j = 0; j < column_panels; ++j) {
      uint64_t* sum = sums + (i * stride + j) * tile_rows * tile_columns;
      for (int64_t k = 0; k < inner; ++k) {
        const uint64_t* pa = a + (i * inner + k) * tile_rows;
        const uint64_t* pb = b + (j * inner + k) * tile_columns;
        for (int64_t r = 0; r < tile_rows; ++r)
          for (int64_t c = 0; c < tile_columns; ++c) sum[r * tile_columns + c] += pa[r] * pb[c];
      }
    }
  }
}

struct BFloat {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};
double widen(double x) { return x; }
double widen(float x) { return x; }
double widen(BFloat x) { return bf16_to_f32(x.bits); }
double widen(Half x) { return f16_to_f32(x.bits); }
template <class Integer>
uint64_t widen(Integer x) {
  return static_cast<uint64_t>(static_cast<int64_t>(x));
}

/// Packs `count` lines, `width` of them a panel, of elements along `inner`; missing lines of the last panel are zero. A line is a row of a or a column of b.
template <class T, class Wide>
void pack(const T* data, const int64_t* line, int64_t count, const int64_t* along, int64_t inner, int64_t width, Wide* to) {
  for (int64_t first = 0; first < count; first += width) {
    const int64_t lines = std::min(width, count - first);
    const int64_t* offset = line + first;
    if (lines == width && offset[width - 1] - offset[0] == width - 1) {  // offsets ascend, so these are neighbours
      for (int64_t k = 0; k < inner; ++k, to += width) {
        const T* from = data + along[k] + offset[0];
        for (int64_t l = 0; l < width; ++l) to[l] = widen(from[l]);
      }
      continue;
    }
    for (int64_t k = 0; k < inner; ++k, to += width) {
      for (int64_t l = 0; l < lines; ++l) to[l] = widen(data[along[k] + offset[l]]);
      for (int64_t l = lines; l < width; ++l) to[l] = 0;
    }
  }
}

/// Calls `body` with a pointer of the element's type.
template <class Body>
void with_floats(const std::byte* data, DType dtype, Body body) {
  switch (dtype) {
    case DType::F64: return body(reinterpret_cast<const double*>(data));
    case DType::F32: return body(reinterpret_cast<const float*>(data));
    case DType::BF16: return body(reinterpret_cast<const BFloat*>(data));
    case DType::F16: return body(reinterpret_cast<const Half*>(data));
    case DType::I64:
    case DType::I32:
    case DType::I8:
    case DType::U8:
    case DType::Bool: break;
  }
  check_failed("a floating dtype", std::string(name(dtype)), std::source_location::current());
}
template <class Body>
void with_integers(const std::byte* data, DType dtype, Body body) {
  switch (dtype) {
    case DType::I64: return body(reinterpret_cast<const int64_t*>(data));
    case DType::I32: return body(reinterpret_cast<const int32_t*>(data));
    case DType::I8: return body(reinterpret_cast<const int8_t*>(data));
    case DType::U8: return body(reinterpret_cast<const uint8_t*>(data));
    case DType::F64:
    case DType::F32:
    case DType::BF16:
    case DType::F16:
    case DType::Bool: break;
  }
  check_failed("an integer dtype", std::string(name(dtype)), std::source_location::current());
}
template <class Wide, class Body>
void with_elements(const std::byte* data, DType dtype, Body body) {
  if constexpr (std::is_same_v<Wide, double>)
    with_floats(data, dtype, body);
  else
    with_integers(data, dtype, body);
}

void store_row(const double* from, int64_t count, std::byte* result, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::F64: return static_cast<void>(std::copy_n(from, count, reinterpret_cast<double*>(result) + at));
    case DType::F32: {
      auto* to = reinterpret_cast<float*>(result) + at;
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
      return;
    }
    case DType::BF16:
    case DType::F16: {
      auto* to = reinterpret_cast<uint16_t*>(result) + at;
      for (int64_t i = 0; i < count; ++i) to[i] = dtype == DType::BF16 ? f64_to_bf16(from[i]) : f64_to_f16(from[i]);
      return;
    }
    case DType::I64:
    case DType::I32:
    case DType::I8:
    case DType::U8:
    case DType::Bool: break;
  }
}
template <class Integer>
void store_low_bits(const uint64_t* from, int64_t count, std::byte* result, int64_t at) {
  auto* to = reinterpret_cast<Integer*>(result) + at;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Integer>(from[i]);
}
void store_row(const uint64_t* from, int64_t count, std::byte* result, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::I64: return store_low_bits<uint64_t>(from, count, result, at);
    case DType::I32: return store_low_bits<uint32_t>(from, count, result, at);
    case DType::I8:
    case DType::U8: return store_low_bits<uint8_t>(from, count, result, at);
    case DType::F64:
    case DType::F32:
    case DType::BF16:
    case DType::F16:
    case DType::Bool: break;
  }
}

int64_t panels(int64_t count, int64_t width) { return (count + width - 1) / width; }

/// Rows [0, rows) x columns [0, columns) of sums in tiles of 4 x 8, `stride` tiles a row of tiles.
template <class Wide, class Each>
void for_tile_rows(Wide* sums, int64_t rows, int64_t columns, int64_t stride, Each each) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; j += tile_columns)
      each(sums + ((i / tile_rows) * stride + j / tile_columns) * tile_rows * tile_columns + (i % tile_rows) * tile_columns, i, j,
           std::min(tile_columns, columns - j));
  }
}

template <class Wide>
Wide* aligned(std::vector<Wide>& space, int64_t count) {
  constexpr size_t line = 64 / sizeof(Wide);
  if (space.size() < static_cast<size_t>(count) + line) space.resize(static_cast<size_t>(count) + line);
  const size_t misplaced = reinterpret_cast<uintptr_t>(space.data()) % 64 / sizeof(Wide);
  return space.data() + (misplaced == 0 ? 0 : line - misplaced);
}

template <class Wide>
void multiply_wide(const MatrixView& a, const MatrixView& b, std::byte* result, DType dtype, std::vector<Wide>& a_space, std::vector<Wide>& b_space,
                   std::vector<Wide>& sum_space, bool add) {
  const auto rows = static_cast<int64_t>(a.row->size()), inner = static_cast<int64_t>(a.column->size()), columns = static_cast<int64_t>(b.column->size());
  const int64_t most_inner = std::min(inner, block_inner);
  Wide* packed_a = aligned(a_space, panels(std::min(rows, block_rows), tile_rows) * tile_rows * most_inner);
  Wide* packed_b = aligned(b_space, panels(std::min(columns, block_columns), tile_columns) * tile_columns * most_inner);
  const int64_t most_tiles = panels(std::min(rows, block_result_rows), tile_rows) * panels(std::min(columns, block_columns), tile_columns);
  Wide* sums = aligned(sum_space, most_tiles * tile_rows * tile_columns);
  for (int64_t i = 0; i < rows; i += block_result_rows) {
    const int64_t row_count = std::min(block_result_rows, rows - i);
    for (int64_t j = 0; j < columns; j += block_columns) {
      const int64_t column_count = std::min(block_columns, columns - j), stride = panels(column_count, tile_columns);
      std::fill_n(sums, panels(row_count, tile_rows) * stride * tile_rows * tile_columns, Wide{0});
      if (add) {
        for_tile_rows(sums, row_count, column_count, stride, [&](Wide* tile, int64_t r, int64_t c, int64_t count) {
          std::copy_n(reinterpret_cast<const Wide*>(result) + (i + r) * columns + j + c, count, tile);
        });
      }
      for (int64_t k = 0; k < inner; k += block_inner) {
        const int64_t inner_count = std::min(block_inner, inner - k);
        with_elements<Wide>(b.data, b.dtype,
                            [&](const auto* data) { pack(data, b.column->data() + j, column_count, b.row->data() + k, inner_count, tile_columns, packed_b); });
        for (int64_t r = 0; r < row_count; r += block_rows) {
          const int64_t count = std::min(block_rows, row_count - r);
          with_elements<Wide>(a.data, a.dtype,
                              [&](const auto* data) { pack(data, a.row->data() + i + r, count, a.column->data() + k, inner_count, tile_rows, packed_a); });
          multiply_panels(packed_a, packed_b, sums + r / tile_rows * stride * tile_rows * tile_columns, panels(count, tile_rows), stride, stride, inner_count);
        }
      }
      for_tile_rows(sums, row_count, column_count, stride,
                    [&](Wide* tile, int64_t r, int64_t c, int64_t count) { store_row(tile, count, result, dtype, (i + r) * columns + j + c); });
    }
  }
}

}  // namespace

void multiply(const MatrixView& a, const MatrixView& b, std::byte* result, DType dtype, MatMulSpace& space, bool add) {
  SG_CHECK(a.column->size() == b.row->size(), "inner sizes differ");
  SG_CHECK(!add || dtype == DType::F64, "adding to rounded sums");
  if (a.row->empty() || b.column->empty()) return;
  if (is_floating(dtype)) return multiply_wide(a, b, result, dtype, space.a, space.b, space.c, add);
  multiply_wide(a, b, result, dtype, space.integer_a, space.integer_b, space.integer_c, add);
}

}  // namespace stepgraph
