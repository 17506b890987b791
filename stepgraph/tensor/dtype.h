// SPDX-License-Identifier: Apache-2.0
// Element types and correct rounding between them. bf16 and f16 follow IEEE round-to-nearest-even; NaN stays NaN.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stepgraph {

enum class DType : uint8_t { F64, F32, BF16, F16, I64, I32, I8, U8, Bool };
inline constexpr int dtype_count = 9;

std::string_view name(DType dtype);  ///< "f32"
std::optional<DType> dtype_from_name(std::string_view text);
size_t size_bytes(DType dtype);
bool is_floating(DType dtype);
bool is_half(DType dtype);  ///< f16, bf16
/// Of sums, statistics and states: f64 of f64, f32 of all others.
DType wide_dtype(DType dtype);
bool is_integer(DType dtype);  ///< signed or unsigned integer, not bool
/// The dtype of `a op b` in PyTorch's promotion of two tensors with dimensions (bf16 with f16 gives f32; u8 with i8 gives a wider signed type).
DType promote(DType a, DType b);

uint16_t f32_to_bf16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f64_to_bf16(double value);  ///< one rounding (not through f32)
uint16_t f32_to_f16(float value);
float f16_to_f32(uint16_t bits);
uint16_t f64_to_f16(double value);  ///< one rounding
/// `value` rounded once to `dtype` (floating dtypes), as f64.
double round_to(DType dtype, double value);

}  // namespace stepgraph
