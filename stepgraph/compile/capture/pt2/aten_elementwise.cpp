// SPDX-License-Identifier: Apache-2.0
// Element-wise operators, with PyTorch's promotion made explicit by converts.
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/elementwise_table.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

Operand other_operand(const OperatorCall& call) {
  if (call.has("other")) return call.operand("other");
  return call.operand("b");
}

/// Both operands in their result type.
std::pair<Value, Value> promoted(OperatorCall& call) {
  const Operand a = call.operand("self"), b = other_operand(call);
  const DType dtype = result_type({a, b});
  return {as_value(call.builder(), a, dtype), as_value(call.builder(), b, dtype)};
}

template <UnaryKind kind>
void floating_unary(OperatorCall& call) {
  call.result(unary(kind, as_floating(call.tensor(call.has("self") ? "self" : "x"))));
}
template <size_t... I>
constexpr std::array<Row, sizeof...(I)> rows_by_kind(std::index_sequence<I...>) {
  return {floating_unary<static_cast<UnaryKind>(I)>...};
}

/// Kinds that take floats alone go by their own name; these are PyTorch's other names of them.
constexpr std::pair<const char*, UnaryKind> other_names[] = {
    {"arccos", UnaryKind::Acos}, {"arccosh", UnaryKind::Acosh}, {"arcsin", UnaryKind::Asin}, {"arcsinh", UnaryKind::Asinh},
    {"arctan", UnaryKind::Atan}, {"arctanh", UnaryKind::Atanh}, {"special_erf", UnaryKind::Erf}, {"special_erfc", UnaryKind::Erfc},
    {"special_erfinv", UnaryKind::Erfinv}, {"special_exp2", UnaryKind::Exp2}, {"special_expit", UnaryKind::Sigmoid}, {"special_expm1", UnaryKind::Expm1},
    {"special_gammaln", UnaryKind::Lgamma}, {"special_log1p", UnaryKind::Log1p}};

std::vector<NamedRow> floating_kinds() {
  constexpr auto rows = rows_by_kind(std::make_index_sequence<Unary::names.size()>{});
  std::vector<NamedRow> result;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (unary_info(static_cast<UnaryKind>(i)).takes == Takes::Floats) result.push_back({Unary::names[i].data(), rows[i]});
  }
  for (const auto& [other, kind] : other_names) result.push_back({other, rows[static_cast<size_t>(kind)]});
  return result;
}
template <UnaryKind kind>
void any_unary(OperatorCall& call) {
  call.result(unary(kind, call.tensor("self")));
}
/// Of NaN it is 0.
void sign_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (!is_floating(x.dtype())) return call.result(sign(x));
  call.result(where(is_nan(x), zeros_like(x), sign(x)));
}
/// floor, ceil, round, trunc: identity on integers.
template <UnaryKind kind>
void rounding(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(is_floating(x.dtype()) ? unary(kind, x) : x);
}
template <BinaryKind kind>
void arithmetic(OperatorCall& call) {
  const auto [a, b] = promoted(call);
  call.result(binary(kind, a, b));
}
template <CompareKind kind>
void comparison(OperatorCall& call) {
  const auto [a, b] = promoted(call);
  call.result(compare(kind, a, b));
}

/// 16-bit products and quotients take a number (or a tensor without dims of another type) as it is: computed in f32, rounded once. Sums take it rounded.
DType computed_in(const std::vector<Operand>& operands, DType dtype) {
  if (!is_floating(dtype) || size_bytes(dtype) != 2) return dtype;
  for (const Operand& operand : operands) {
    const Value* value = std::get_if<Value>(&operand);
    if (!value || (value->rank() == 0 && value->dtype() != dtype)) return DType::F32;
  }
  return dtype;
}

/// self + alpha * other, and its relatives.
void add_scaled(OperatorCall& call, bool reversed, double sign) {
  Operand a = call.operand("self"), b = other_operand(call);
  if (reversed) std::swap(a, b);
  const DType dtype = result_type({a, b});
  Value left = as_value(call.builder(), a, dtype), right = as_value(call.builder(), b, dtype);
  const double alpha = call.real("alpha", 1.0);
  if (alpha != 1) {
    left = widened(left);
    right = widened(right) * widened(as_value(call.builder(), *call.maybe_number("alpha"), dtype));
  }
  if (dtype == DType::Bool && sign > 0) return call.result(logical_or(left, right));
  call.result(convert(sign > 0 ? left + right : left - right, dtype));
}
void add(OperatorCall& call) { add_scaled(call, false, 1); }
void sub(OperatorCall& call) { add_scaled(call, false, -1); }
void rsub(OperatorCall& call) { add_scaled(call, true, -1); }

void mul(OperatorCall& call) {
  const Operand left = call.operand("self"), right = other_operand(call);
  const DType dtype = result_type({left, right}), wide = computed_in({left, right}, dtype);
  const Value a = as_value(call.builder(), left, wide), b = as_value(call.builder(), right, wide);
  call.result(dtype == DType::Bool ? logical_and(a, b) : convert(a * b, dtype));
}

void div(OperatorCall& call) {
  const std::string mode = call.text("rounding_mode");
  if (mode.empty()) {
    const Operand left = call.operand("self"), right = other_operand(call);
    const DType found = result_type({left, right}), dtype = is_floating(found) ? found : DType::F32, wide = computed_in({left, right}, dtype);
    return call.result(convert(as_value(call.builder(), left, wide) / as_value(call.builder(), right, wide), dtype));
  }
  const auto [a, b] = promoted(call);
  if (mode == "floor") return call.result(floor_divide(a, b));
  if (mode != "trunc") call.fail("rounding_mode '" + mode + "' is unknown");
  if (is_floating(a.dtype())) return call.result(convert(trunc(widened(a) / widened(b)), a.dtype()));
  // Truncation of integers: floor of magnitudes, sign put back.
  const Value quotient = floor_divide(abs(a), abs(b));
  call.result(quotient * sign(a) * sign(b));
}

void fmod_row(OperatorCall& call) {
  const auto [a, b] = promoted(call);
  call.result(fmod(a, b));
}

void pow_row(OperatorCall& call) {
  const Operand a = call.operand("self"), b = call.operand("exponent");
  const DType dtype = result_type({a, b});
  const Number* exponent = std::get_if<Number>(&b);
  const Value base = as_value(call.builder(), a, dtype);
  if (exponent && exponent->value == 2 && !(exponent->symbol && !exponent->symbol->is_constant())) return call.result(base * base);
  const bool is_constant = exponent && !(exponent->symbol && !exponent->symbol->is_constant());
  // By roots, which differ from powers at -0 and -infinity.
  if (is_constant && std::fabs(exponent->value) == 0.5 && is_floating(dtype)) return call.result(exponent->value > 0 ? sqrt(base) : rsqrt(base));
  if (is_constant && is_floating(dtype)) return call.result(pow(base, exponent->value));
  call.result(pow(base, as_value(call.builder(), b, dtype)));
}

/// The upper bound wins where the bounds cross; a bound that is NaN is taken. The gradient is x's where it is in range, bounds included; a bound's where x is
/// beyond, for the lower one only if it is less than the upper one; and none's where a comparison fails for NaN.
Value clamped(const Value& x, const std::optional<Value>& low, const std::optional<Value>& high) {
  const bool floating = is_floating(x.dtype());
  const auto taken = [&](const Value& beyond, const Value& bound) { return floating ? logical_or(beyond, is_nan(bound)) : beyond; };
  Value value = x;
  if (low) value = where(taken(less(value, *low), *low), *low, value);
  if (high) value = where(taken(greater(value, *high), *high), *high, value);
  if (!floating) return value;
  value = stop_gradient(value);
  std::optional<Value> inside;
  if (low) {
    const Value below = less(x, *low);
    value = where(high ? logical_and(below, less(*low, *high)) : below, *low, value);
    inside = greater_equal(x, *low);
  }
  if (high) {
    const Value above = greater(x, *high);
    value = where(low ? logical_or(above, less(*high, *low)) : above, *high, value);
    inside = inside ? logical_and(*inside, less_equal(x, *high)) : less_equal(x, *high);
  }
  return inside ? where(*inside, x, value) : x;
}
void clamp_row(OperatorCall& call) {
  std::vector<Operand> operands{call.operand("self")};
  for (const char* bound : {"min", "max"})
    if (call.has(bound)) operands.push_back(call.operand(bound));
  const DType dtype = result_type(operands);
  const Value x = as_value(call.builder(), operands[0], dtype);
  std::optional<Value> low, high;
  if (call.has("min")) low = as_value(call.builder(), operands[1], dtype);
  if (call.has("max")) high = as_value(call.builder(), operands.back(), dtype);
  call.result(clamped(x, low, high));
}

/// Gradient 1 inside (low, high), 0 outside and at the bounds, as PyTorch's hardtanh family.
Value open_clamp(const Value& x, double low, double high) {
  const Value inside = logical_and(greater(x, low), less(x, high));
  return where(inside, x, where(less_equal(x, low), full_like(x, low), where(is_nan(x), x, full_like(x, high))));
}

void hardtanh(OperatorCall& call) { call.result(open_clamp(call.tensor("self"), call.real("min_val", -1), call.real("max_val", 1))); }
void relu6(OperatorCall& call) { call.result(open_clamp(call.tensor("self"), 0, 6)); }
void hardsigmoid(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Value bounded = open_clamp(x + 3.0, 0, 6);
  call.result(where(is_nan(x), stop_gradient(bounded), bounded) / 6.0);
}
void hardswish(OperatorCall& call) {
  const Value x = call.tensor("self");
  // x below -3: 0; above 3: x; between: x * (x + 3) / 6, which infinity is kept from.
  const Value below = less_equal(x, -3.0), above = greater_equal(x, 3.0), bounded = where(logical_or(below, above), zeros_like(x), x);
  call.result(where(below, zeros_like(x), where(above, x, bounded * (bounded + 3.0) / 6.0)));
}
void leaky_relu(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(where(greater(x, 0.0), x, x * call.real("negative_slope", 0.01)));
}
void elu(OperatorCall& call) {
  const Value x = call.tensor("self");
  const double alpha = call.real("alpha", 1), outer = call.real("scale", 1), inner = call.real("input_scale", 1);
  const Value negative = where(greater(x, 0.0), zeros_like(x), x);
  call.result(where(greater(x, 0.0), x * outer, expm1(negative * inner) * (alpha * outer)));
}
void selu(OperatorCall& call) {
  const Value x = call.tensor("self");
  constexpr double alpha = 1.6732632423543772848170429916717, outer = 1.0507009873554804934193349852946;
  const Value negative = where(greater(x, 0.0), zeros_like(x), x);
  call.result(where(greater(x, 0.0), x * outer, expm1(negative) * (alpha * outer)));
}
Value softplus_of(const Value& x, double beta, double threshold) {
  const Value scaled = x * beta;
  const Value bounded = where(greater(scaled, threshold), zeros_like(scaled), scaled);
  // log(1 + e^z) = max(z, 0) + log1p(e^-|z|), where the maximum has half of the gradient at zero, as the whole has
  const Value soft = (maximum(bounded, zeros_like(bounded)) + log1p(exp(neg(abs(bounded))))) / beta;
  return where(greater(scaled, threshold), x, soft);
}
void softplus(OperatorCall& call) { call.result(softplus_of(call.tensor("self"), call.real("beta", 1), call.real("threshold", 20))); }
void mish_row(OperatorCall& call) { call.result(mish(call.tensor("self"))); }
void log_sigmoid(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(neg(softplus_of(neg(x), 1, 1e30)));
}
void gelu_row(OperatorCall& call) { call.result(gelu(call.tensor("self"), call.text("approximate", "none") == "tanh" ? GeluKind::Tanh : GeluKind::Exact)); }
void silu_row(OperatorCall& call) { call.result(silu(call.tensor("self"))); }
void threshold(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(where(less_equal(x, call.real("threshold")), full_like(x, call.real("value")), x));  // NaN stays
}
void softshrink(OperatorCall& call) {
  const Value x = call.tensor("self");
  const double lambda = call.real("lambd", 0.5);
  call.result(where(less_equal(abs(x), lambda), zeros_like(x), where(greater(x, 0.0), x - lambda, x + lambda)));  // NaN stays
}
void glu(OperatorCall& call) {
  const Value x = call.tensor("self");
  const std::vector<Value> halves = split(x, call.integer("dim", -1), 2);
  call.result(halves[0] * sigmoid(halves[1]));
}
void prelu(OperatorCall& call) {
  const Value x = call.tensor("self");
  Value weight = call.tensor("weight");
  if (weight.rank() == 1 && x.rank() > 1) {
    Shape shape(static_cast<size_t>(x.rank()), Dim(1));
    shape[1] = weight.dim(0);
    weight = reshape(weight, shape);
  }
  call.result(where(greater(x, 0.0), x, weight * x));
}

void addcmul(OperatorCall& call) { call.result(call.tensor("self") + call.tensor("tensor1") * call.tensor("tensor2") * call.real("value", 1)); }
void addcdiv(OperatorCall& call) { call.result(call.tensor("self") + call.tensor("tensor1") / call.tensor("tensor2") * call.real("value", 1)); }
void lerp(OperatorCall& call) {
  const Value start = call.tensor("self"), end = call.tensor("end");
  const Value weight = as_value(call.builder(), call.operand("weight"), start.dtype());
  call.result(start + weight * (end - start));
}

void where_row(OperatorCall& call) {
  const Value condition = convert(call.tensor("condition"), DType::Bool);
  if (!call.has("self")) call.fail("where with a condition alone has a size that depends on data");
  const Operand a = call.operand("self"), b = call.operand("other");
  const DType dtype = result_type({a, b});
  call.result(where(condition, as_value(call.builder(), a, dtype), as_value(call.builder(), b, dtype)));
}
void masked_fill_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(where(call.tensor("mask"), as_value(call.builder(), call.operand("value"), x.dtype()), x));
}

void logical_not_row(OperatorCall& call) { call.result(logical_not(convert(call.tensor("self"), DType::Bool))); }
void bitwise_not_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(x.dtype() == DType::Bool ? logical_not(x) : -1.0 - x);
}
template <BinaryKind kind>
void logical(OperatorCall& call) {
  const auto [a, b] = promoted(call);
  call.result(binary(kind, convert(a, DType::Bool), convert(b, DType::Bool)));
}

void square(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(x * x);
}
void is_inf(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (!is_floating(x.dtype())) return call.result(full(call.builder(), DType::Bool, x.shape(), 0));
  call.result(equal(abs(x), std::numeric_limits<double>::infinity()));
}
void is_nan_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(is_floating(x.dtype()) ? is_nan(x) : full(call.builder(), DType::Bool, x.shape(), 0));
}
void is_finite_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(is_floating(x.dtype()) ? is_finite(x) : full(call.builder(), DType::Bool, x.shape(), 1));
}
void trunc_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(is_floating(x.dtype()) ? trunc(x) : x);
}
void frac_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(x - trunc(x));
}
void nan_to_num(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (!is_floating(x.dtype())) return call.result(x);
  const double largest = x.dtype() == DType::F64 ? std::numeric_limits<double>::max() : x.dtype() == DType::F16 ? 65504 : x.dtype() == DType::BF16 ? 3.3895313892515355e38 : std::numeric_limits<float>::max();
  const double infinity = std::numeric_limits<double>::infinity();
  Value y = where(is_nan(x), full_like(x, call.real("nan", 0)), x);
  y = where(equal(x, infinity), full_like(x, call.real("posinf", largest)), y);
  call.result(where(equal(x, -infinity), full_like(x, call.real("neginf", -largest)), y));
}
void neg_row(OperatorCall& call) { call.result(neg(call.tensor("self"))); }

}  // namespace

std::vector<NamedRow> elementwise_rows() {
  std::vector<NamedRow> rows = {
      {"neg", neg_row}, {"abs", any_unary<UnaryKind::Abs>}, {"sign", sign_row}, {"sgn", sign_row},
      {"square", square},
      {"floor", rounding<UnaryKind::Floor>}, {"ceil", rounding<UnaryKind::Ceil>}, {"trunc", trunc_row}, {"fix", trunc_row}, {"frac", frac_row},
      {"relu", any_unary<UnaryKind::Relu>}, {"relu6", relu6}, {"hardtanh", hardtanh}, {"hardsigmoid", in_f32<hardsigmoid>}, {"hardswish", in_f32<hardswish>},
      {"leaky_relu", in_f32<leaky_relu>}, {"elu", in_f32<elu>}, {"selu", in_f32<selu>}, {"softplus", in_f32<softplus>}, {"mish", mish_row}, {"log_sigmoid", in_f32<log_sigmoid>}, {"gelu", gelu_row}, {"silu", silu_row},
      {"threshold", threshold}, {"softshrink", in_f32<softshrink>}, {"glu", in_f32<glu>}, {"prelu", prelu}, {"_prelu_kernel", prelu},
      {"logical_not", logical_not_row}, {"bitwise_not", bitwise_not_row}, {"isnan", is_nan_row}, {"isinf", is_inf}, {"isfinite", is_finite_row}, {"nan_to_num", nan_to_num},
      {"add", add}, {"sub", sub}, {"subtract", sub}, {"rsub", rsub}, {"mul", mul}, {"multiply", mul}, {"div", div}, {"divide", div}, {"true_divide", div},
      {"floor_divide", arithmetic<BinaryKind::FloorDivide>}, {"remainder", arithmetic<BinaryKind::Remainder>}, {"fmod", fmod_row}, {"pow", pow_row},
      {"maximum", arithmetic<BinaryKind::Maximum>}, {"minimum", arithmetic<BinaryKind::Minimum>}, {"max.other", arithmetic<BinaryKind::Maximum>},
      {"min.other", arithmetic<BinaryKind::Minimum>}, {"clamp", clamp_row}, {"clip", clamp_row}, {"clamp_min", clamp_row}, {"clamp_max", clamp_row},
      {"eq", comparison<CompareKind::Equal>}, {"ne", comparison<CompareKind::NotEqual>}, {"not_equal", comparison<CompareKind::NotEqual>}, {"lt", comparison<CompareKind::Less>},
      {"le", comparison<CompareKind::LessEqual>}, {"gt", comparison<CompareKind::Greater>}, {"ge", comparison<CompareKind::GreaterEqual>}, {"less", comparison<CompareKind::Less>},
      {"greater", comparison<CompareKind::Greater>}, {"greater_equal", comparison<CompareKind::GreaterEqual>}, {"less_equal", comparison<CompareKind::LessEqual>},
      {"logical_and", logical<BinaryKind::And>}, {"logical_or", logical<BinaryKind::Or>}, {"logical_xor", logical<BinaryKind::Xor>},
      {"bitwise_and", arithmetic<BinaryKind::And>}, {"bitwise_or", arithmetic<BinaryKind::Or>}, {"bitwise_xor", arithmetic<BinaryKind::Xor>},
      {"__and__", arithmetic<BinaryKind::And>}, {"__or__", arithmetic<BinaryKind::Or>}, {"__xor__", arithmetic<BinaryKind::Xor>},
      {"addcmul", in_f32<addcmul>}, {"addcdiv", in_f32<addcdiv>}, {"lerp", in_f32<lerp>}, {"where", where_row}, {"masked_fill", masked_fill_row},
  };
  for (const NamedRow& row : floating_kinds()) rows.push_back(row);
  return rows;
}

}  // namespace stepgraph::pt2
