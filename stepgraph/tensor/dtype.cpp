// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

struct DTypeRow {
  std::string_view name;
  size_t bytes;
  bool floating, integer;
};
constexpr std::array<DTypeRow, dtype_count> rows = {{
    {"f64", 8, true, false},
    {"f32", 4, true, false},
    {"bf16", 2, true, false},
    {"f16", 2, true, false},
    {"i64", 8, false, true},
    {"i32", 4, false, true},
    {"i8", 1, false, true},
    {"u8", 1, false, true},
    {"bool", 1, false, false},
}};
const DTypeRow& row(DType dtype) { return rows[static_cast<size_t>(dtype)]; }

/// Rounds to nearest, ties to even, keeping `mantissa_bits` stored bits. The exponent field of the result has `exponent_bits`.
/// Works on integers alone, so that no second rounding can creep in.
template <int exponent_bits, int mantissa_bits>
uint16_t narrow(double value) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr uint16_t infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 63) << 15);
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7FF) {
    if (mantissa == 0) return sign | infinity;
    // The quiet bit is set, so that a payload cut to zero does not turn NaN into infinity.
    return static_cast<uint16_t>(sign | infinity | (1 << (mantissa_bits - 1)) | (mantissa >> (52 - mantissa_bits)));
  }
  if (exponent == 0) return sign;  // zero, or an f64 subnormal: far below half of the smallest number of either format
  mantissa |= uint64_t{1} << 52;
  const int target = exponent - 1023 + bias;
  // A subnormal of the target has exponent field 0 and loses one more bit for each step below 1.
  const int shift = 52 - mantissa_bits + std::max(0, 1 - target);
  if (shift > 54) return sign;
  const uint64_t kept = mantissa >> shift;
  const uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  const uint64_t rounded = kept + ((rest > half || (rest == half && (kept & 1) != 0)) ? 1 : 0);
  // The hidden bit of a normal number adds one to the exponent field, and so does a carry out of the mantissa.
  const uint64_t field = (target >= 1 ? static_cast<uint64_t>(target - 1) << mantissa_bits : 0) + rounded;
  return static_cast<uint16_t>(sign | std::min<uint64_t>(field, infinity));
}

DType promote_integers(DType a, DType b) {
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  if (a == b) return a;
  const bool mixed_bytes = size_bytes(a) == 1 && size_bytes(b) == 1;
  // The contract asks for a type that holds both; PyTorch takes i16, which is not one of ours.
  if (mixed_bytes) return DType::I32;
  return size_bytes(a) > size_bytes(b) ? a : b;
}

}  // namespace

std::string_view name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view text) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name == text) return static_cast<DType>(i);
  return std::nullopt;
}

size_t size_bytes(DType dtype) { return row(dtype).bytes; }
bool is_floating(DType dtype) { return row(dtype).floating; }
bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }
DType wide_dtype(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }
bool is_integer(DType dtype) { return row(dtype).integer; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (!is_floating(a)) return promote_integers(a, b);
  if (size_bytes(a) == size_bytes(b)) return DType::F32;  // bf16 with f16
  return size_bytes(a) > size_bytes(b) ? a : b;
}

uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x0040);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t f64_to_bf16(double value) { return narrow<8, 7>(value); }
uint16_t f32_to_f16(float value) { return narrow<5, 10>(value); }  // f32 to f64 is exact
uint16_t f64_to_f16(double value) { return narrow<5, 10>(value); }

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000 | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::F64: return value;
    case DType::F32: return static_cast<float>(value);
    case DType::BF16: return bf16_to_f32(f64_to_bf16(value));
    case DType::F16: return f16_to_f32(f64_to_f16(value));
    case DType::I64:
    case DType::I32:
    case DType::I8:
    case DType::U8:
    case DType::Bool: break;
  }
  check_failed("is_floating(dtype)", "round_to of " + std::string(name(dtype)), std::source_location::current());
}

}  // namespace stepgraph
