// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/elementwise.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/ops/elementwise_table.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/rows/checks.h"

namespace stepgraph {
namespace {

Operands matched(std::string_view function, const Value& a, const Value& b) {
  const Operands same = same_dtype(function, a, b);
  const Shape shape = broadcast_shape(function, *a.builder, a.type(), b.type());
  return {stretch(same.a, shape), stretch(same.b, shape)};
}

/// The dtype in which a tensor meets a C++ number: its own, unless the number does not fit its kind.
DType dtype_with_number(DType dtype, double number) {
  if (is_floating(dtype)) return dtype;
  if (number != std::floor(number) || !std::isfinite(number)) return DType::F32;
  return dtype == DType::Bool ? DType::I64 : dtype;
}

Operands with_number(const Value& x, double number) {
  const DType dtype = dtype_with_number(x.dtype(), number);
  return {convert(x, dtype), full(*x.builder, dtype, x.shape(), number)};
}

Value to_floating(const Value& x) { return is_floating(x.dtype()) ? x : convert(x, DType::F32); }
Value to_bool(const Value& x) { return x.dtype() == DType::Bool ? x : not_equal(x, 0.0); }

Value emit_binary(BinaryKind kind, const Operands& operands) { return operands.a.builder->emit_one(Binary{kind}, {operands.a, operands.b}); }
Value emit_compare(CompareKind kind, const Operands& operands) { return operands.a.builder->emit_one(Compare{kind}, {operands.a, operands.b}); }

Value binary_number(BinaryKind kind, const Value& x, double number, bool number_first) {
  const Value operand = binary_info(kind).takes == Takes::Floats ? to_floating(x) : x;
  Operands operands = with_number(operand, number);
  if (number_first) std::swap(operands.a, operands.b);
  return emit_binary(kind, operands);
}

Value compare_number(CompareKind kind, const At& a, double b) {
  const PlaceScope place(a);
  return emit_compare(kind, with_number(a.value, b));
}

}  // namespace

// ---- sources

Value constant(Builder& builder, Literal value) { return builder.emit_one(Constant{std::move(value)}, {}); }

Value scalar(Builder& builder, DType dtype, double value) {
  if (is_floating(dtype)) return constant(builder, Literal::scalar(dtype, value));
  // 2^63 is the first double that no i64 holds.
  if (!(value >= -0x1p63 && value < 0x1p63)) fail(builder, fmt::format("constant: {} is out of range for {}", value, name(dtype)));
  return constant(builder, Literal::integer(dtype, static_cast<int64_t>(value)));
}

Value full(Builder& builder, DType dtype, const Shape& shape, double value) { return stretch(scalar(builder, dtype, value), shape); }
Value zeros(Builder& builder, const TensorType& type) { return full(builder, type.dtype, type.shape, 0); }
Value zeros_like(At x) { return full_like(x, 0); }
Value ones_like(At x) { return full_like(x, 1); }
Value full_like(At x, double value) {
  const PlaceScope place(x);
  return full(*x.value.builder, x->dtype(), x->shape(), value);
}
Value iota(Builder& builder, DType dtype, const Shape& shape, int64_t dim) {
  const auto rank = static_cast<int64_t>(shape.size());
  return builder.emit_one(Iota{dtype, shape, dim < 0 ? dim + rank : dim, 0}, {});
}
Value size_value(Builder& builder, DType dtype, const Dim& dim) { return builder.emit_one(SizeValue{dtype, dim}, {}); }

namespace {
Value random(RandomKind kind, Value key, DType dtype, const Shape& shape) {
  return key.builder->emit_one(Random{kind, dtype, shape, DrawPlace::whole(shape)}, {key});
}
}  // namespace
Value random_uniform(Value key, DType dtype, const Shape& shape) { return random(RandomKind::Uniform, key, dtype, shape); }
Value random_normal(Value key, DType dtype, const Shape& shape) { return random(RandomKind::Normal, key, dtype, shape); }
Value fold_in(Value key, Value operand) {
  check_same_graph("fold_in", key, operand);
  return key.builder->emit_one(FoldIn{}, {key, operand});
}
Value fold_in(Value key, int64_t operand) { return fold_in(key, constant(*key.builder, Literal::integer(DType::I64, operand))); }

// ---- element-wise

Value unary(UnaryKind kind, At x) {
  const PlaceScope place(x);
  Value operand = autocast(name(kind), x.value);
  const Takes takes = unary_info(kind).takes;
  if (takes == Takes::Floats) operand = to_floating(operand);
  if (takes == Takes::Bits && is_floating(operand.dtype())) operand = to_bool(operand);
  return operand.builder->emit_one(Unary{kind}, {operand});
}
Value neg(At x) { return unary(UnaryKind::Negate, x); }
Value abs(At x) { return unary(UnaryKind::Abs, x); }
Value sign(At x) { return unary(UnaryKind::Sign, x); }
Value exp(At x) { return unary(UnaryKind::Exp, x); }
Value expm1(At x) { return unary(UnaryKind::Expm1, x); }
Value log(At x) { return unary(UnaryKind::Log, x); }
Value log1p(At x) { return unary(UnaryKind::Log1p, x); }
Value sqrt(At x) { return unary(UnaryKind::Sqrt, x); }
Value rsqrt(At x) { return unary(UnaryKind::Rsqrt, x); }
Value reciprocal(At x) { return unary(UnaryKind::Reciprocal, x); }
Value sin(At x) { return unary(UnaryKind::Sin, x); }
Value cos(At x) { return unary(UnaryKind::Cos, x); }
Value tanh(At x) { return unary(UnaryKind::Tanh, x); }
Value sigmoid(At x) { return unary(UnaryKind::Sigmoid, x); }
Value erf(At x) { return unary(UnaryKind::Erf, x); }
Value floor(At x) { return unary(UnaryKind::Floor, x); }
Value ceil(At x) { return unary(UnaryKind::Ceil, x); }
Value round(At x) { return unary(UnaryKind::Round, x); }
Value relu(At x) { return unary(UnaryKind::Relu, x); }
Value logical_not(At x) {
  const PlaceScope place(x);
  return unary(UnaryKind::Not, to_bool(x.value));
}
Value is_finite(At x) { return unary(UnaryKind::IsFinite, x); }
Value is_nan(At x) { return unary(UnaryKind::IsNan, x); }

Value binary(BinaryKind kind, At a, At b) {
  const PlaceScope place(a);
  if (binary_info(kind).takes == Takes::Floats) return emit_binary(kind, matched(name(kind), to_floating(a.value), to_floating(b.value)));
  return emit_binary(kind, matched(name(kind), a.value, b.value));
}
Value operator+(At a, At b) { return binary(BinaryKind::Add, a, b); }
Value operator-(At a, At b) { return binary(BinaryKind::Subtract, a, b); }
Value operator*(At a, At b) { return binary(BinaryKind::Multiply, a, b); }
Value operator/(At a, At b) { return binary(BinaryKind::Divide, a, b); }
Value operator-(At a) { return neg(a); }

Value operator+(At a, double b) {
  const PlaceScope place(a);
  return binary_number(BinaryKind::Add, a.value, b, false);
}
Value operator-(At a, double b) {
  const PlaceScope place(a);
  return binary_number(BinaryKind::Subtract, a.value, b, false);
}
Value operator*(At a, double b) {
  const PlaceScope place(a);
  return binary_number(BinaryKind::Multiply, a.value, b, false);
}
Value operator/(At a, double b) {
  const PlaceScope place(a);
  return binary_number(BinaryKind::Divide, a.value, b, false);
}
Value operator+(double a, At b) {
  const PlaceScope place(b);
  return binary_number(BinaryKind::Add, b.value, a, true);
}
Value operator-(double a, At b) {
  const PlaceScope place(b);
  return binary_number(BinaryKind::Subtract, b.value, a, true);
}
Value operator*(double a, At b) {
  const PlaceScope place(b);
  return binary_number(BinaryKind::Multiply, b.value, a, true);
}
Value operator/(double a, At b) {
  const PlaceScope place(b);
  return binary_number(BinaryKind::Divide, b.value, a, true);
}

Value floor_divide(At a, At b) { return binary(BinaryKind::FloorDivide, a, b); }
Value remainder(At a, At b) { return binary(BinaryKind::Remainder, a, b); }
Value pow(At a, At b) {
  const PlaceScope place(a);
  autocast("pow", {&a.value, &b.value});
  return binary(BinaryKind::Power, a, b);
}
Value pow(At a, double b) {
  const PlaceScope place(a);
  a.value = autocast("pow", a.value);
  if (!is_floating(a->dtype()) && b < 0) fail(*a.value.builder, fmt::format("power: an integer ({}) to the power of {}, which is negative", name(a->dtype()), b));
  return binary_number(BinaryKind::Power, a.value, b, false);
}
Value maximum(At a, At b) { return binary(BinaryKind::Maximum, a, b); }
Value minimum(At a, At b) { return binary(BinaryKind::Minimum, a, b); }

Value clamp(At x, std::optional<double> low, std::optional<double> high) {
  const PlaceScope place(x);
  // Not by maximum and minimum: those share the gradient of a tie, and a bound is in range. Comparisons let NaN through, which has no gradient. The upper
  // bound is applied last, so that it wins when the bounds cross.
  Value result = stop_gradient(x.value);
  std::optional<Value> inside;
  const auto also = [&](const Value& truth) { inside = inside ? logical_and(*inside, truth) : truth; };
  if (low) {
    const Operands bounded = with_number(result, *low);
    result = where(emit_compare(CompareKind::Less, bounded), bounded.b, bounded.a);
    also(greater_equal(x.value, *low));
  }
  if (high) {
    const Operands bounded = with_number(result, *high);
    result = where(emit_compare(CompareKind::Greater, bounded), bounded.b, bounded.a);
    also(less_equal(x.value, *high));
  }
  return inside && is_floating(x->dtype()) ? where(*inside, x.value, result) : low || high ? result : x.value;
}

namespace {
Value logical(BinaryKind kind, const At& a, const At& b) {
  const PlaceScope place(a);
  return emit_binary(kind, matched(name(kind), to_bool(a.value), to_bool(b.value)));
}
}  // namespace
Value logical_and(At a, At b) { return logical(BinaryKind::And, a, b); }
Value logical_or(At a, At b) { return logical(BinaryKind::Or, a, b); }
Value logical_xor(At a, At b) { return logical(BinaryKind::Xor, a, b); }

Value compare(CompareKind kind, At a, At b) {
  const PlaceScope place(a);
  return emit_compare(kind, matched(name(kind), a.value, b.value));
}
Value equal(At a, At b) { return compare(CompareKind::Equal, a, b); }
Value not_equal(At a, At b) { return compare(CompareKind::NotEqual, a, b); }
Value less(At a, At b) { return compare(CompareKind::Less, a, b); }
Value less_equal(At a, At b) { return compare(CompareKind::LessEqual, a, b); }
Value greater(At a, At b) { return compare(CompareKind::Greater, a, b); }
Value greater_equal(At a, At b) { return compare(CompareKind::GreaterEqual, a, b); }
Value equal(At a, double b) { return compare_number(CompareKind::Equal, a, b); }
Value not_equal(At a, double b) { return compare_number(CompareKind::NotEqual, a, b); }
Value less(At a, double b) { return compare_number(CompareKind::Less, a, b); }
Value less_equal(At a, double b) { return compare_number(CompareKind::LessEqual, a, b); }
Value greater(At a, double b) { return compare_number(CompareKind::Greater, a, b); }
Value greater_equal(At a, double b) { return compare_number(CompareKind::GreaterEqual, a, b); }

Value where(At condition, At on_true, At on_false) {
  const PlaceScope place(condition);
  check_same_graph("select", condition.value, on_true.value);
  Builder& builder = *condition.value.builder;
  const Operands arms = same_dtype("select", on_true.value, on_false.value);
  TensorType joined = arms.a.type();
  joined.shape = broadcast_shape("select", builder, arms.a.type(), arms.b.type());
  const Shape shape = broadcast_shape("select", builder, condition->type(), joined);
  return builder.emit_one(Select{}, {stretch(to_bool(condition.value), shape), stretch(arms.a, shape), stretch(arms.b, shape)});
}

Value convert(At x, DType dtype, bool is_explicit) {
  const PlaceScope place(x);
  if (x->dtype() == dtype) return x.value;
  return x.value.builder->emit_one(Convert{dtype, is_explicit}, {x.value});
}

Value widened(At x) {
  const PlaceScope place(x);
  return x->dtype() == DType::BF16 || x->dtype() == DType::F16 ? convert(x.value, DType::F32) : x.value;
}

Value with_zero_gradient(At result, Value x) {
  const PlaceScope place(result);
  const Value part = convert(x, result->dtype());
  return where(full(*result.value.builder, DType::Bool, result->shape(), 1), result.value, part);
}

Value stop_gradient(At x) {
  const PlaceScope place(x);
  return x.value.builder->emit_one(StopGradient{}, {x.value});
}

Value trunc(At x) {
  const PlaceScope place(x);
  return where(less(x.value, 0.0), ceil(x.value), floor(x.value));
}

Value fmod(At a, At b) {
  const PlaceScope place(a);
  const DType dtype = promote(a->dtype(), b->dtype());
  const Value x = convert(a.value, dtype), y = convert(b.value, dtype);
  if (is_floating(dtype)) {
    // remainder takes the divisor's sign: of magnitudes it is exact, and the dividend's sign is put back. Gradients: 1 and -trunc(x / y).
    const Value magnitude = stop_gradient(remainder(abs(x), abs(y)));
    const Value exact = where(less(x, 0.0), neg(magnitude), magnitude);
    const Value whole = stop_gradient(trunc(x / y));
    const Value linear = x - where(equal(whole, 0.0), zeros_like(y), whole * y);  // of an infinite divisor there is no part
    return linear - stop_gradient(linear) + exact;
  }
  const Value magnitude = remainder(abs(x), abs(y));
  return where(less(x, 0.0), neg(magnitude), magnitude);
}

}  // namespace stepgraph
