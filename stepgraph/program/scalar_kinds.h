// SPDX-License-Identifier: Apache-2.0
// What one element is computed by: the kinds that ops of the compiler and expressions of forms have in common. Their lines are in elementwise_kinds.h.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include "stepgraph/program/elementwise_kinds.h"
#include "stepgraph/tensor/dtype.h"

namespace stepgraph {

#define STEPGRAPH_KIND(kind, ...) kind,
#define STEPGRAPH_NAME(kind, text, ...) std::string_view(text),
enum class UnaryKind : uint8_t { STEPGRAPH_UNARY_KINDS(STEPGRAPH_KIND) };
/// Divide, Atan2 (the angle of the point (b, a)): floating only. FloorDivide and Remainder round towards minus infinity (sign of the divisor), as PyTorch's.
/// And/Or/Xor: bool or integer.
enum class BinaryKind : uint8_t { STEPGRAPH_BINARY_KINDS(STEPGRAPH_KIND) };
enum class CompareKind : uint8_t { STEPGRAPH_COMPARE_KINDS(STEPGRAPH_KIND) };
enum class RandomKind : uint8_t { Uniform, Normal };  ///< uniform in [0, 1); standard normal

/// In the order of their kinds.
inline constexpr std::array unary_names{STEPGRAPH_UNARY_KINDS(STEPGRAPH_NAME)};
inline constexpr std::array binary_names{STEPGRAPH_BINARY_KINDS(STEPGRAPH_NAME)};
inline constexpr std::array compare_names{STEPGRAPH_COMPARE_KINDS(STEPGRAPH_NAME)};
inline constexpr std::array<std::string_view, 2> random_names{"random_uniform", "random_normal"};

/// The column of elementwise_kinds.h that says which dtypes a kind takes.
enum class Takes : uint8_t {
  Floats,    ///< floating dtypes; the functions convert others to f32
  Numbers,   ///< all but bool
  Bits,      ///< bool and integers
  Anything,  ///< any dtype, and the result is bool
};
#define STEPGRAPH_TAKES(kind, text, takes, ...) Takes::takes,
inline constexpr std::array unary_takes{STEPGRAPH_UNARY_KINDS(STEPGRAPH_TAKES)};
inline constexpr std::array binary_takes{STEPGRAPH_BINARY_KINDS(STEPGRAPH_TAKES)};
#undef STEPGRAPH_KIND
#undef STEPGRAPH_NAME
#undef STEPGRAPH_TAKES

constexpr std::string_view name(UnaryKind kind) { return unary_names[static_cast<size_t>(kind)]; }
constexpr std::string_view name(BinaryKind kind) { return binary_names[static_cast<size_t>(kind)]; }
constexpr std::string_view name(CompareKind kind) { return compare_names[static_cast<size_t>(kind)]; }

bool accepts(Takes takes, DType dtype);
inline bool accepts(UnaryKind kind, DType dtype) { return accepts(unary_takes[static_cast<size_t>(kind)], dtype); }
inline bool accepts(BinaryKind kind, DType dtype) { return accepts(binary_takes[static_cast<size_t>(kind)], dtype); }

}  // namespace stepgraph
