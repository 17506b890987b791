// SPDX-License-Identifier: Apache-2.0
// Elements in memory, and what is reckoned with them in: f64, of integers 64 bits that wrap. For the .cpp files of this folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include "stepgraph/base/error.h"
#include "stepgraph/tensor/dtype.h"

namespace stepgraph {

template <class T>
struct WideElement {
  using Stored = T;
  using Wide = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  static Wide load(T x) { return static_cast<Wide>(x); }
  static T store(Wide x) { return static_cast<T>(x); }
};
struct WideBf16 {
  using Stored = uint16_t;
  using Wide = double;
  static double load(uint16_t x) { return static_cast<double>(bf16_to_f32(x)); }
  static uint16_t store(double x) { return f64_to_bf16(x); }
};
struct WideF16 {
  using Stored = uint16_t;
  using Wide = double;
  static double load(uint16_t x) { return static_cast<double>(f16_to_f32(x)); }
  static uint16_t store(double x) { return f64_to_f16(x); }
};

/// Calls body(element) for the dtype, any but bool.
template <class Body>
void with_wide_element(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::F64: return body(WideElement<double>{});
    case DType::F32: return body(WideElement<float>{});
    case DType::BF16: return body(WideBf16{});
    case DType::F16: return body(WideF16{});
    case DType::I64: return body(WideElement<int64_t>{});
    case DType::I32: return body(WideElement<int32_t>{});
    case DType::I8: return body(WideElement<int8_t>{});
    case DType::U8: return body(WideElement<uint8_t>{});
    case DType::Bool: break;
  }
  SG_CHECK(false, "numbers are not bool");
}

inline double wide_add(double a, double b) { return a + b; }
inline int64_t wide_add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
inline double wide_multiply(double a, double b) { return a * b; }
inline int64_t wide_multiply(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
/// NaN wins.
inline double wide_max(double a, double b) { return a > b || a != a ? a : b; }
inline int64_t wide_max(int64_t a, int64_t b) { return a > b ? a : b; }
inline double wide_min(double a, double b) { return a < b || a != a ? a : b; }
inline int64_t wide_min(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace stepgraph
