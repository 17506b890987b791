// SPDX-License-Identifier: Apache-2.0
// The rows of the element-wise kinds, made of the lines of program/elementwise_kinds.h: what each takes, how it is computed and what holds of it.
#pragma once
#include <cstdint>
#include "stepgraph/compile/ir/op.h"

namespace stepgraph {

/// What one element is computed by: the price here, and what a code generator has to bring.
enum class ScalarBody : uint8_t {
  Instruction,    ///< one IEEE or integer instruction, or a choice between operands: exact in every dtype, f32 computed in f32
  Formula,        ///< a few of those
  Approximation,  ///< no instruction: a polynomial or a table, about ten operations
};

/// The operands in which a kind is linear (ShardingRule::linear_groups).
enum class Linearity : uint8_t { NotLinear, InFirst, InEach, InBoth };

/// The number that, as second operand (of a commuting kind: as either), leaves the other as it is, to the bit. Of integers both zeros are 0.
enum class Neutral : uint8_t { NoNumber, PlusZero, MinusZero, One, IntegerOne };
enum class OperandOrder : uint8_t { Ordered, Commutes };

struct UnaryInfo {
  Takes takes;
  ScalarBody body;
  Linearity linearity;
  /// Values by plain loops, into a result of its dtype. Null for dtypes that the kind does not take.
  void (*floats)(const Literal& x, Literal& result);
  void (*integers)(const Literal& x, Literal& result);
};
struct BinaryInfo {
  Takes takes;
  ScalarBody body;
  Linearity linearity;
  Neutral neutral;
  OperandOrder order;
  void (*floats)(const Literal& a, const Literal& b, Literal& result);
  void (*integers)(const Literal& a, const Literal& b, Literal& result);
};
struct CompareInfo {
  void (*floats)(const Literal& a, const Literal& b, Literal& result);
  void (*integers)(const Literal& a, const Literal& b, Literal& result);
};
const UnaryInfo& unary_info(UnaryKind kind);
const BinaryInfo& binary_info(BinaryKind kind);
const CompareInfo& compare_info(CompareKind kind);

}  // namespace stepgraph
