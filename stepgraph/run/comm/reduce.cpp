// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "stepgraph/base/error.h"
#include "stepgraph/run/comm/communicator.h"

namespace stepgraph {
namespace {

constexpr int64_t block = 1024;  // elements accumulated at a time: stays in the first cache

template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    return b > a || std::isnan(b) ? b : a;
  } else {
    return std::max(a, b);
  }
}
template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    return b < a || std::isnan(b) ? b : a;
  } else {
    return std::min(a, b);
  }
}

/// accumulator[i] = accumulator[i] op values[i]. Integers wrap: their arithmetic is done on the unsigned type.
template <class T>
void accumulate(ReduceKind kind, T* accumulator, const T* values, int64_t count) {
  switch (kind) {
    case ReduceKind::Sum:
      for (int64_t i = 0; i < count; ++i) accumulator[i] = static_cast<T>(accumulator[i] + values[i]);
      return;
    case ReduceKind::Product:
      for (int64_t i = 0; i < count; ++i) accumulator[i] = static_cast<T>(accumulator[i] * values[i]);
      return;
    case ReduceKind::Max:
      for (int64_t i = 0; i < count; ++i) accumulator[i] = larger(accumulator[i], values[i]);
      return;
    case ReduceKind::Min:
      for (int64_t i = 0; i < count; ++i) accumulator[i] = smaller(accumulator[i], values[i]);
      return;
    case ReduceKind::Any:
      for (int64_t i = 0; i < count; ++i) accumulator[i] = static_cast<T>((accumulator[i] != 0) | (values[i] != 0));
      return;
    case ReduceKind::All:
      for (int64_t i = 0; i < count; ++i) accumulator[i] = static_cast<T>((accumulator[i] != 0) & (values[i] != 0));
      return;
  }
}

template <class Stored, class Wide, class Load, class Store>
void reduce_as(ReduceKind kind, std::span<const Literal* const> values, std::byte* result, int64_t first, int64_t last, Load load, Store store) {
  std::array<Wide, block> accumulator, next;
  auto* out = reinterpret_cast<Stored*>(result);
  for (int64_t start = first; start < last; start += block) {
    const int64_t count = std::min(block, last - start);
    for (size_t v = 0; v < values.size(); ++v) {
      const auto* in = reinterpret_cast<const Stored*>(values[v]->data()) + start;
      Wide* to = v == 0 ? accumulator.data() : next.data();
      for (int64_t i = 0; i < count; ++i) to[i] = load(in[i]);
      if (v > 0) accumulate(kind, accumulator.data(), next.data(), count);
    }
    for (int64_t i = 0; i < count; ++i) out[start + i] = store(accumulator[static_cast<size_t>(i)]);
  }
}
template <class Stored, class Wide>
void reduce_as(ReduceKind kind, std::span<const Literal* const> values, std::byte* result, int64_t first, int64_t last) {
  reduce_as<Stored, Wide>(
      kind, values, result, first, last, [](Stored x) { return static_cast<Wide>(x); }, [](Wide x) { return static_cast<Stored>(x); });
}

/// How many elements lie before and after `dim`, counted in elements of the value.
struct Strips {
  int64_t outer = 1, inner = 1;
};
Strips strips(const Sizes& sizes, int64_t dim) {
  Strips result;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (static_cast<int64_t>(d) < dim) result.outer *= sizes[d];
    if (static_cast<int64_t>(d) > dim) result.inner *= sizes[d];
  }
  return result;
}
void check_dim(const Literal& value, int64_t dim) {
  SG_CHECK(dim >= 0 && dim < static_cast<int64_t>(value.rank()), "dim " + std::to_string(dim) + " of rank " + std::to_string(value.rank()));
}

}  // namespace

void check_reduce_dtype(ReduceKind kind, DType dtype) {
  const bool wants_bool = kind == ReduceKind::Any || kind == ReduceKind::All;
  if (wants_bool != (dtype == DType::Bool))
    throw UserError("reduction '" + std::string(name(kind)) + "': found dtype " + std::string(name(dtype)) + ", wanted " + (wants_bool ? "bool" : "a number"));
}

void reduce_elements(ReduceKind kind, std::span<const Literal* const> values, std::byte* result, int64_t first, int64_t last) {
  SG_CHECK(!values.empty() && first >= 0 && last <= values[0]->count());
  for (const Literal* value : values) SG_CHECK(value->dtype() == values[0]->dtype() && value->count() == values[0]->count());
  if (first >= last) return;
  const auto run = [&]<class Stored, class Wide>(Stored, Wide) { reduce_as<Stored, Wide>(kind, values, result, first, last); };
  switch (values[0]->dtype()) {
    case DType::F64: return run(double{}, double{});
    case DType::F32: return run(float{}, double{});
    case DType::BF16:
      return reduce_as<uint16_t, double>(
          kind, values, result, first, last, [](uint16_t x) { return static_cast<double>(bf16_to_f32(x)); }, [](double x) { return f64_to_bf16(x); });
    case DType::F16:
      return reduce_as<uint16_t, double>(
          kind, values, result, first, last, [](uint16_t x) { return static_cast<double>(f16_to_f32(x)); }, [](double x) { return f64_to_f16(x); });
    case DType::I64:
      // Sums and products wrap in unsigned arithmetic; the order of Max and Min needs the sign.
      if (kind == ReduceKind::Max || kind == ReduceKind::Min) return run(int64_t{}, int64_t{});
      return run(uint64_t{}, uint64_t{});
    case DType::I32:
      if (kind == ReduceKind::Max || kind == ReduceKind::Min) return run(int32_t{}, int32_t{});
      return run(uint32_t{}, uint32_t{});
    case DType::I8: return run(int8_t{}, int8_t{});
    case DType::U8:
    case DType::Bool: return run(uint8_t{}, uint8_t{});
  }
}

Literal reduce_identity(ReduceKind kind, DType dtype, Sizes sizes) {
  switch (kind) {
    case ReduceKind::Sum:
    case ReduceKind::Any: return Literal(dtype, std::move(sizes));
    case ReduceKind::Product:
    case ReduceKind::All: return Literal::full(dtype, std::move(sizes), 1);
    case ReduceKind::Max: return Literal::full(dtype, std::move(sizes), -std::numeric_limits<double>::infinity());  // integers saturate
    case ReduceKind::Min: return Literal::full(dtype, std::move(sizes), std::numeric_limits<double>::infinity());
  }
  check_failed("kind is one of the enumerators", {}, std::source_location::current());
}

Literal slice_dim(const Literal& value, int64_t dim, int64_t start, int64_t size) {
  check_dim(value, dim);
  const int64_t full = value.sizes()[static_cast<size_t>(dim)];
  SG_CHECK(start >= 0 && size >= 0 && start <= full && size <= full - start,
           "slice " + std::to_string(start) + " + " + std::to_string(size) + " of " + std::to_string(full));
  if (size == full) return value;
  Sizes sizes = value.sizes();
  sizes[static_cast<size_t>(dim)] = size;
  Literal result = Literal::uninitialised(value.dtype(), sizes);
  if (result.count() == 0) return result;
  const Strips strip = strips(value.sizes(), dim);
  const size_t unit = static_cast<size_t>(strip.inner) * size_bytes(value.dtype());
  const auto rows = static_cast<size_t>(size), all = static_cast<size_t>(full), begin = static_cast<size_t>(start);
  std::byte* out = result.mutable_data();
  for (size_t o = 0; o < static_cast<size_t>(strip.outer); ++o) std::memcpy(out + o * rows * unit, value.data() + (o * all + begin) * unit, rows * unit);
  return result;
}

Literal join_dim(std::span<const Literal* const> pieces, int64_t dim) {
  SG_CHECK(!pieces.empty());
  check_dim(*pieces[0], dim);
  Sizes sizes = pieces[0]->sizes();
  const auto d = static_cast<size_t>(dim);
  sizes[d] = 0;
  for (const Literal* piece : pieces) {
    Sizes others = piece->sizes();
    SG_CHECK(others.size() == sizes.size() && piece->dtype() == pieces[0]->dtype(), "pieces of different kinds");
    const int64_t extent = std::exchange(others[d], sizes[d]);
    SG_CHECK(others == sizes, "pieces differ in another dim");
    sizes[d] += extent;
  }
  if (pieces.size() == 1) return *pieces[0];
  Literal result = Literal::uninitialised(pieces[0]->dtype(), sizes);
  if (result.count() == 0) return result;
  const Strips strip = strips(sizes, dim);
  const size_t unit = static_cast<size_t>(strip.inner) * size_bytes(result.dtype());
  std::byte* out = result.mutable_data();
  for (size_t o = 0; o < static_cast<size_t>(strip.outer); ++o) {
    for (const Literal* piece : pieces) {
      const size_t bytes = static_cast<size_t>(piece->sizes()[d]) * unit;
      if (bytes > 0) std::memcpy(out, piece->data() + o * bytes, bytes);
      out += bytes;
    }
  }
  return result;
}

}  // namespace stepgraph
