// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/rows/elementwise_gradients.h"

#include <numbers>

#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {
namespace {

using Gradients = std::vector<std::optional<Value>>;

/// In one step of arithmetic, which rounds once in any dtype.
bool is_one_step(UnaryKind kind) {
  return kind == UnaryKind::Negate || kind == UnaryKind::Abs || kind == UnaryKind::Exp || kind == UnaryKind::Log || kind == UnaryKind::Relu;
}

std::optional<Value> gradient_of_unary(UnaryKind kind, const Value& x, const Value& y, const Value& g) {
  switch (kind) {
    case UnaryKind::Negate: return neg(g);
    case UnaryKind::Abs: {  // 0 at NaN, as in PyTorch
      const Value unknown = is_nan(x), direction = sign(x);
      return g * where(unknown, zeros_like(x), direction);
    }
    case UnaryKind::Exp: return g * y;
    case UnaryKind::Expm1: return g * (y + 1.0);
    case UnaryKind::Log: return g / x;
    case UnaryKind::Log1p: return g / (x + 1.0);
    case UnaryKind::Sqrt: return g / (y * 2.0);
    case UnaryKind::Rsqrt: return g * (y * y * y) * -0.5;
    case UnaryKind::Reciprocal: return neg(g * (y * y));
    case UnaryKind::Sin: return g * cos(x);
    case UnaryKind::Cos: return neg(g * sin(x));
    case UnaryKind::Tanh: return g * (1.0 - y * y);
    case UnaryKind::Sigmoid: return g * (y * (1.0 - y));
    case UnaryKind::Erf: return g * (exp(neg(x * x)) * (2.0 * std::numbers::inv_sqrtpi));
    // By "not above 0" instead of "above 0": the gradient passes where NaN did.
    case UnaryKind::Relu: return where(less_equal(y, 0.0), zeros_like(g), g);
    case UnaryKind::Exp2: return g * (y * std::numbers::ln2);
    case UnaryKind::Log2: return g / (x * std::numbers::ln2);
    case UnaryKind::Log10: return g / (x * std::numbers::ln10);
    case UnaryKind::Tan: return g * (y * y + 1.0);
    case UnaryKind::Asin: return g * rsqrt(1.0 - x * x);
    case UnaryKind::Acos: return neg(g * rsqrt(1.0 - x * x));
    case UnaryKind::Atan: return g / (x * x + 1.0);
    case UnaryKind::Sinh: return g * unary(UnaryKind::Cosh, x);
    case UnaryKind::Cosh: return g * unary(UnaryKind::Sinh, x);
    case UnaryKind::Asinh: return g * rsqrt(x * x + 1.0);
    case UnaryKind::Acosh: return g * rsqrt(x * x - 1.0);
    case UnaryKind::Atanh: return g / (1.0 - x * x);
    case UnaryKind::Erfc: return g * (exp(neg(x * x)) * (-2.0 * std::numbers::inv_sqrtpi));
    case UnaryKind::Erfinv: return g * (exp(y * y) * (0.5 / std::numbers::inv_sqrtpi));
    case UnaryKind::Lgamma: return g * x.builder->emit_one(Polygamma{0}, {x});
    // A gradient of zero, not none: a parameter that is reached through a step is one that decays, as PyTorch has it.
    case UnaryKind::Sign: case UnaryKind::Floor: case UnaryKind::Ceil: case UnaryKind::Round: return zeros_like(g);
    case UnaryKind::Not: case UnaryKind::IsFinite: case UnaryKind::IsNan:
      return std::nullopt;
  }
  return std::nullopt;
}

/// The number that fills the value, if it is one constant, stretched or not.
std::optional<double> constant_number(const Value& value) {
  const Graph& graph = value.builder->graph();
  ValueId id = value.id;
  while (true) {
    const int32_t producer = graph.values[static_cast<size_t>(id.index)].node;
    if (producer < 0) return std::nullopt;
    const Node& node = graph.nodes[static_cast<size_t>(producer)];
    if (const auto* constant = std::get_if<Constant>(&node.op)) {
      return constant->value.count() == 1 ? std::optional<double>(constant->value.at(0)) : std::nullopt;
    }
    if (!std::holds_alternative<Broadcast>(node.op)) return std::nullopt;
    id = node.inputs[0];
  }
}

/// y a^(y-1), finite at y = 0 whatever a is: the exponent is kept from -1 there, so that no infinity is multiplied by the 0 before it, here or in a
/// gradient of this gradient.
Value power_base_gradient(const Value& a, const Value& b, const Value& g) {
  if (const std::optional<double> exponent = constant_number(b)) {
    if (*exponent == 0) return zeros_like(g);
    if (*exponent == 1) return g;
    if (*exponent == 2) return g * (a * 2.0);
    return g * (pow(a, *exponent - 1) * *exponent);
  }
  const Value constant_power = equal(b, 0.0);
  const Value lowered = where(constant_power, ones_like(b), b - 1.0);
  return where(constant_power, zeros_like(g), g * (b * pow(a, lowered)));
}

/// a^b log a, and 0 where a = 0 and b >= 0. The base is kept from 0 before the logarithm.
Value power_exponent_gradient(const Value& a, const Value& b, const Value& g) {
  const Value flat = logical_and(equal(a, 0.0), greater_equal(b, 0.0));
  const Value base = where(flat, ones_like(a), a);
  return where(flat, zeros_like(g), g * (pow(base, b) * log(base)));
}

/// Of the angle of (b, a): b and -a over a² + b², which is kept from 0 where both are.
Gradients angle_gradient(const Value& a, const Value& b, const Value& g) {
  const Value squares = a * a + b * b;
  const Value scale = g / where(equal(squares, 0.0), ones_like(squares), squares);
  return {scale * b, neg(scale * a)};
}

/// The greater takes all; a tie is shared. Masks the loser, not the winner, so that the gradient passes both ways where NaN did.
Value extreme_gradient(const Value& loses, const Value& ties, const Value& g) {
  return where(loses, zeros_like(g), where(ties, g * 0.5, g));
}

}  // namespace

Gradients unary_gradient(const GradientRequest& request) {
  const Value x = request.inputs[0], y = request.results[0], g = *request.result_gradients[0];
  const UnaryKind kind = std::get<Unary>(request.op).kind;
  if (!is_floating(x.dtype())) return {std::nullopt};
  if (is_one_step(kind)) return {gradient_of_unary(kind, x, y, g)};
  const std::optional<Value> wide = gradient_of_unary(kind, widened(x), is_floating(y.dtype()) ? widened(y) : y, widened(g));
  return {wide ? std::optional<Value>(convert(*wide, x.dtype())) : std::nullopt};
}

Gradients polygamma_gradient(const GradientRequest& request) {
  const Value x = request.inputs[0];
  return {*request.result_gradients[0] * x.builder->emit_one(Polygamma{std::get<Polygamma>(request.op).order + 1}, {x})};
}

namespace {

/// Of y = a op b, for those of a and b that need one.
Gradients gradients_of_binary(BinaryKind kind, const Value& a, const Value& b, const Value& y, const Value& g, bool first, bool second) {
  Gradients result(2);
  switch (kind) {
    case BinaryKind::Add:
      if (first) result[0] = g;
      if (second) result[1] = g;
      break;
    case BinaryKind::Subtract:
      if (first) result[0] = g;
      if (second) result[1] = neg(g);
      break;
    case BinaryKind::Multiply:
      if (first) result[0] = g * b;
      if (second) result[1] = g * a;
      break;
    case BinaryKind::Divide:
      if (first) result[0] = g / b;
      if (second) result[1] = neg(g * (y / b));
      break;
    case BinaryKind::Remainder:
      if (first) result[0] = g;
      if (second) result[1] = neg(g * floor_divide(a, b));
      break;
    case BinaryKind::Power:
      if (first) result[0] = power_base_gradient(a, b, g);
      if (second) result[1] = power_exponent_gradient(a, b, g);
      break;
    case BinaryKind::Maximum:
      if (first) result[0] = extreme_gradient(less(a, b), equal(a, b), g);
      if (second) result[1] = extreme_gradient(less(b, a), equal(a, b), g);
      break;
    case BinaryKind::Minimum:
      if (first) result[0] = extreme_gradient(greater(a, b), equal(a, b), g);
      if (second) result[1] = extreme_gradient(greater(b, a), equal(a, b), g);
      break;
    case BinaryKind::Atan2: return angle_gradient(a, b, g);
    case BinaryKind::FloorDivide:
      if (first) result[0] = zeros_like(g);
      if (second) result[1] = zeros_like(g);
      break;
    case BinaryKind::And: case BinaryKind::Or: case BinaryKind::Xor: break;
  }
  return result;
}

bool is_one_step(BinaryKind kind) {
  return kind != BinaryKind::Divide && kind != BinaryKind::Power && kind != BinaryKind::Atan2 && kind != BinaryKind::Remainder;
}

}  // namespace

Gradients binary_gradient(const GradientRequest& request) {
  const BinaryKind kind = std::get<Binary>(request.op).kind;
  const Value a = request.inputs[0], b = request.inputs[1], y = request.results[0], g = *request.result_gradients[0];
  if (!is_floating(a.dtype())) return Gradients(2);
  if (is_one_step(kind) || a.dtype() == DType::F32 || a.dtype() == DType::F64) return gradients_of_binary(kind, a, b, y, g, request.needed[0], request.needed[1]);
  Gradients result = gradients_of_binary(kind, widened(a), widened(b), widened(y), widened(g), request.needed[0], request.needed[1]);
  for (std::optional<Value>& found : result)
    if (found) found = convert(*found, a.dtype());
  return result;
}

Gradients select_gradient(const GradientRequest& request) {
  const Value g = *request.result_gradients[0];
  Gradients result(3);
  if (!is_floating(g.dtype())) return result;
  if (request.needed[1]) result[1] = where(request.inputs[0], g, zeros_like(g));
  if (request.needed[2]) result[2] = where(request.inputs[0], zeros_like(g), g);
  return result;
}

Gradients convert_gradient(const GradientRequest& request) {
  const DType from = request.inputs[0].dtype();
  if (!is_floating(from) || !is_floating(request.results[0].dtype())) return {std::nullopt};
  return {convert(*request.result_gradients[0], from, std::get<Convert>(request.op).is_explicit)};
}

}  // namespace stepgraph
