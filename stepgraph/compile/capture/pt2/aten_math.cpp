// SPDX-License-Identifier: Apache-2.0
// Element-wise functions beyond the everyday ones: trigonometry, the gamma family, bits, signs, and activations that few models use.
#include <cmath>
#include <limits>
#include <numbers>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// Both operands of a binary operator in their common floating dtype, broadcast together by what follows.
std::pair<Value, Value> floating_pair(OperatorCall& call) {
  const Operand a = call.operand("self"), b = call.operand("other");
  DType dtype = result_type({a, b});
  if (!is_floating(dtype)) dtype = DType::F32;
  return {as_value(call.builder(), a, dtype), as_value(call.builder(), b, dtype)};
}
/// The same, of one shape; integers stay integers unless `floating`.
std::pair<Value, Value> pair_of(OperatorCall& call, bool floating) {
  const Operand a = call.operand("self"), b = call.operand("other");
  DType dtype = result_type({a, b});
  if (floating && !is_floating(dtype)) dtype = DType::F32;
  const Value x = as_value(call.builder(), a, dtype), y = as_value(call.builder(), b, dtype);
  return {broadcast_pair(x, y.shape()), broadcast_pair(y, x.shape())};
}
Value is_nan_value(const Value& x) { return not_equal(x, x); }

/// x f(y) with f the logarithm of y (and 1): 0 where x is 0, whatever the logarithm is, and NaN where y is. PyTorch's gradients: f(y), but 0 where x is 0 and the
/// logarithm is not finite; x / y (or y + 1).
template <bool plus_one>
void x_log_row(OperatorCall& call) {
  const auto [a, b] = pair_of(call, true);
  const auto times_log = [](const Value& x, const Value& y) {
    const Value product = x * (plus_one ? log1p(y) : log(y));
    return where(is_nan(y), y, where(equal(x, 0.0), zeros_like(product), product));
  };
  const CompositeBody body = [&](Builder&, const std::vector<Value>& in) { return std::vector<Value>{times_log(in[0], in[1])}; };
  const CompositeBody gradient = [&](Builder&, const std::vector<Value>& in) {
    const Value &x = in[0], &y = in[1], &g = in[3];
    const Value flat = logical_and(equal(x, 0.0), less_equal(y, plus_one ? -1.0 : 0.0));
    return std::vector<Value>{where(flat, zeros_like(g), times_log(g, y)), g * x / (plus_one ? y + 1.0 : y)};
  };
  call.result(composite(call.builder(), plus_one ? "xlog1py" : "xlogy", std::vector<Value>{a, b}, body, gradient)[0]);
}
void logaddexp_row(OperatorCall& call) {
  const auto [a, b] = floating_pair(call);
  const Value high = maximum(a, b);
  // Equal infinities have no distance.
  const Value distance = where(equal(a, b), zeros_like(high), abs(a - b));
  call.result(high + log1p(exp(neg(distance))));
}
/// The other operand where one is NaN.
template <bool is_max>
void ignoring_nan(OperatorCall& call) {
  const auto [a, b] = floating_pair(call);
  // Of equal ones the first, with the whole gradient; the comparison is false where a is NaN.
  const Value first = is_max ? greater_equal(a, b) : less_equal(a, b);
  call.result(where(logical_or(first, is_nan_value(b)), a, b));
}
void hypot_row(OperatorCall& call) {
  const auto [a, b] = floating_pair(call);
  // By the larger one, so that no square is beyond what the dtype holds.
  const Value larger = stop_gradient(maximum(abs(a), abs(b)));
  const Value scale = where(logical_and(is_finite(larger), greater(larger, 0.0)), larger, ones_like(larger));
  const Value x = a / scale, y = b / scale, length = sqrt(x * x + y * y) * scale;
  const double infinity = std::numeric_limits<double>::infinity();
  call.result(where(logical_or(equal(abs(a), infinity), equal(abs(b), infinity)), full_like(length, infinity), length));
}
void hardshrink_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const double bound = call.real("lambd", 0.5);
  call.result(where(less_equal(abs(x), bound), zeros_like(x), x));  // NaN stays
}
template <bool to_radians>
void degrees_row(OperatorCall& call) {
  const Value x = as_floating(call.tensor("self"));
  call.result(x * (to_radians ? std::numbers::pi / 180 : 180 / std::numbers::pi));
}
void logit_row(OperatorCall& call) {
  Value x = as_floating(call.tensor("self"));
  if (call.has("eps")) x = clamp(x, call.real("eps"), 1 - call.real("eps"));
  call.result(log(x / (1.0 - x)));
}

void nansum_row(OperatorCall& call) {
  Value x = call.tensor("self");
  if (const auto dtype = call.dtype()) x = convert(x, *dtype);
  if (!is_floating(x.dtype())) x = convert(x, DType::I64);
  const Value kept = where(is_nan_value(x), zeros_like(x), x);
  const std::vector<int64_t> dims = call.dims("dim", x.rank());
  call.result(x.rank() == 0 ? kept : sum(kept, dims, call.boolean("keepdim", false)));
}

Value flag(OperatorCall& call, const Value& like, bool value) { return full(call.builder(), DType::Bool, like.shape(), value ? 1 : 0); }

void atan2_row(OperatorCall& call) {
  const auto [a, b] = pair_of(call, true);
  call.result(binary(BinaryKind::Atan2, a, b));
}
Value polygamma_value(const Value& x, int64_t order) { return x.builder->emit_one(Polygamma{order}, {x}); }
void digamma_row(OperatorCall& call) { call.result(polygamma_value(as_floating(call.tensor("self")), 0)); }
void polygamma_row(OperatorCall& call) { call.result(polygamma_value(as_floating(call.tensor("self")), call.integer("n"))); }
void mvlgamma_row(OperatorCall& call) {
  const Value x = as_floating(call.tensor("self"));
  const int64_t p = call.integer("p");
  if (p < 1) call.fail("found p = " + std::to_string(p) + ", wanted at least 1");
  Value total = full_like(x, static_cast<double>(p * (p - 1)) / 4 * std::log(std::numbers::pi));
  for (int64_t i = 0; i < p; ++i) total = total + unary(UnaryKind::Lgamma, x - static_cast<double>(i) / 2);
  call.result(total);
}
/// sin(t) / t for t = πx, 1 at 0. Its derivative, (t cos t - sin t) / t², cancels near 0, where the series is taken.
void sinc_row(OperatorCall& call) {
  const CompositeBody body = [](Builder&, const std::vector<Value>& in) {
    const Value at_zero = equal(in[0], 0.0), t = where(at_zero, ones_like(in[0]), in[0]) * std::numbers::pi;
    return std::vector<Value>{where(at_zero, ones_like(t), sin(t) / t)};
  };
  const CompositeBody gradient = [](Builder&, const std::vector<Value>& in) {
    const Value near = less(abs(in[0]), 0.25), t = where(near, ones_like(in[0]), in[0]) * std::numbers::pi;
    const Value small = where(near, in[0], zeros_like(in[0])) * std::numbers::pi, square = small * small;
    Value series = zeros_like(square);
    // -2n / (2n + 1)! (-t²)^(n - 1), from the last term that f64 sees
    for (int n = 9; n >= 1; --n) series = series * neg(square) - 2.0 * n / std::tgamma(2.0 * n + 2.0);
    const Value slope = where(near, small * series, (t * cos(t) - sin(t)) / (t * t));
    return std::vector<Value>{in[2] * (slope * std::numbers::pi)};
  };
  call.result(composite(call.builder(), "sinc", std::vector<Value>{as_floating(call.tensor("self"))}, body, gradient)[0]);
}
void ndtr_row(OperatorCall& call) { call.result(unary(UnaryKind::Erfc, as_floating(call.tensor("self")) * -std::numbers::sqrt2 / 2.0) / 2.0); }
/// -x log x; 0 at 0, -inf below. The gradient is -1 - log x everywhere: infinite at 0.
void entr_row(OperatorCall& call) {
  const CompositeBody body = [](Builder&, const std::vector<Value>& in) {
    const Value& x = in[0];
    const Value positive = greater(x, 0.0), kept = where(positive, x, ones_like(x));
    const Value below = where(equal(x, 0.0), zeros_like(x), where(is_nan(x), x, full_like(x, -std::numeric_limits<double>::infinity())));
    return std::vector<Value>{where(positive, neg(kept * log(kept)), below)};
  };
  const CompositeBody gradient = [](Builder&, const std::vector<Value>& in) { return std::vector<Value>{in[2] * (-1.0 - log(in[0]))}; };
  call.result(composite(call.builder(), "entropy", std::vector<Value>{as_floating(call.tensor("self"))}, body, gradient)[0]);
}
/// log2(2^a + 2^b).
void logaddexp2_row(OperatorCall& call) {
  const auto [a, b] = pair_of(call, true);
  const Value distance = where(equal(a, b), zeros_like(a), abs(a - b));
  call.result(maximum(a, b) + log1p(unary(UnaryKind::Exp2, neg(distance))) / std::numbers::ln2);
}

Value sign_bit(const Value& x) {
  if (!is_floating(x.dtype())) return less(x, 0.0);
  // The reciprocal of a zero shows its sign.
  return less(where(equal(x, 0.0), reciprocal(x), x), 0.0);
}
void signbit_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(x.dtype() == DType::Bool ? flag(call, x, false) : sign_bit(x));
}
/// |a| with b's sign: a's gradient is its sign against the result's, and 0 at 0; b's is 0.
void copysign_row(OperatorCall& call) {
  const auto [a, b] = pair_of(call, true);
  const Value size = abs(a);
  call.result(with_zero_gradient(where(sign_bit(b), neg(size), size), b));
}
template <bool positive>
void is_signed_infinity(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (!is_floating(x.dtype())) return call.result(flag(call, x, false));
  call.result(equal(x, positive ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity()));
}
/// 0 or π, as of a complex number without imaginary part; gradient 0.
void angle_row(OperatorCall& call) {
  const Value x = as_floating(call.tensor("self"));
  call.result(where(is_nan(x), x, where(less(x, 0.0), full_like(x, std::numbers::pi), zeros_like(x))));
}
void isreal_row(OperatorCall& call) { call.result(flag(call, call.tensor("self"), true)); }
void heaviside_row(OperatorCall& call) {
  const Value x = call.tensor("self"), at_zero = call.tensor("values");
  const Value spread = broadcast_pair(x, at_zero.shape());
  call.result(where(equal(spread, 0.0), broadcast_pair(at_zero, x.shape()), convert(greater(spread, 0.0), x.dtype())));
}
void isclose_row(OperatorCall& call) {
  const auto [a, b] = pair_of(call, false);
  Value close = equal(a, b);
  if (is_floating(a.dtype())) {
    const Value near = less_equal(abs(a - b), abs(b) * call.real("rtol", 1e-5) + call.real("atol", 1e-8));
    close = logical_or(close, logical_and(near, logical_and(is_finite(a), is_finite(b))));
    if (call.boolean("equal_nan", false)) close = logical_or(close, logical_and(is_nan(a), is_nan(b)));
  }
  call.result(close);
}
/// Left: times a power of two that wraps. Right: rounds towards minus infinity, in two steps whose powers fit the type; negative shifts, and those by the
/// width and more, leave the sign alone.
template <bool left>
void shift_row(OperatorCall& call) {
  const auto [a, b] = pair_of(call, false);
  if (is_floating(a.dtype()) || a.dtype() == DType::Bool) call.fail("found " + text(a.type()) + ", wanted integers");
  const Value two = full_like(b, 2);
  if (left) return call.result(a * pow(two, b));
  const Value most = full_like(b, static_cast<double>(size_bytes(a.dtype()) * 8 - (a.dtype() == DType::U8 ? 0 : 1)));
  const Value count = where(logical_or(less(b, 0.0), greater(b, most)), most, b), half = floor_divide(count, two);
  call.result(floor_divide(floor_divide(a, pow(two, half)), pow(two, count - half)));
}
void ldexp_row(OperatorCall& call) {
  const auto [a, b] = pair_of(call, true);
  call.result(a * unary(UnaryKind::Exp2, b));
}
void float_power_row(OperatorCall& call) {
  const Operand a = call.operand("self"), b = call.operand("exponent");
  const Value base = as_value(call.builder(), a, DType::F64);
  const Number* number = std::get_if<Number>(&b);
  if (number && std::fabs(number->value) == 0.5) return call.result(number->value > 0 ? sqrt(base) : rsqrt(base));  // as pow
  call.result(pow(base, as_value(call.builder(), b, DType::F64)));
}
void round_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t decimals = call.integer("decimals", 0);
  if (!is_floating(x.dtype())) return call.result(x);
  const double factor = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  call.result(decimals >= 0 ? round(x * factor) / factor : round(x / factor) * factor);
}

void celu_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const double alpha = call.real("alpha", 1);
  const Value below = where(greater(x, 0.0), zeros_like(x), x);
  call.result(where(greater(x, 0.0), x, expm1(below / alpha) * alpha));
}
/// A random slope for each negative element in training, the middle one otherwise.
void rrelu_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const double lower = call.real("lower", 1.0 / 8), upper = call.real("upper", 1.0 / 3);
  const bool random = call.boolean("training", false) && call.training();
  const Value slope = random ? random_uniform(call.key(), x.dtype(), x.shape()) * (upper - lower) + lower : full_like(x, (lower + upper) / 2);
  call.result(where(less_equal(x, 0.0), x * slope, x));
  if (call.node().outputs.size() > 1) call.result(where(less_equal(x, 0.0), slope, ones_like(x)));
}
void log_sigmoid_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Value y = minimum(x, zeros_like(x)) - log1p(exp(neg(abs(x))));
  call.results({y, zeros_like(x)});  // the second serves PyTorch's own backward
}
void refuse_complex(OperatorCall& call) { call.fail("complex numbers are not supported"); }

}  // namespace

std::vector<NamedRow> math_rows() {
  return {
      {"xlogy", in_f32<x_log_row<false>>},
      {"logaddexp", in_f32<logaddexp_row>},
      {"fmax", ignoring_nan<true>},
      {"fmin", ignoring_nan<false>},
      {"hypot", in_f32<hypot_row>},
      {"hardshrink", hardshrink_row},
      {"deg2rad", in_f32<degrees_row<true>>},
      {"rad2deg", in_f32<degrees_row<false>>},
      {"logit", in_f32<logit_row>},
      {"nansum", nansum_row},
      {"atan2", atan2_row},
      {"arctan2", atan2_row},
      {"digamma", digamma_row},
      {"polygamma", polygamma_row},
      {"mvlgamma", in_f32<mvlgamma_row>},
      {"special_digamma", digamma_row},
      {"special_psi", digamma_row},
      {"special_polygamma", polygamma_row},
      {"special_multigammaln", in_f32<mvlgamma_row>},
      {"sinc", in_f32<sinc_row>},
      {"special_sinc", in_f32<sinc_row>},
      {"special_ndtr", in_f32<ndtr_row>},
      {"special_entr", in_f32<entr_row>},
      {"special_xlog1py", in_f32<x_log_row<true>>},
      {"logaddexp2", in_f32<logaddexp2_row>},
      {"signbit", signbit_row},
      {"copysign", copysign_row},
      {"isposinf", is_signed_infinity<true>},
      {"isneginf", is_signed_infinity<false>},
      {"heaviside", heaviside_row},
      {"angle", angle_row},
      {"isreal", isreal_row},
      {"isclose", isclose_row},
      {"bitwise_left_shift", shift_row<true>},
      {"bitwise_right_shift", shift_row<false>},
      {"__lshift__", shift_row<true>},
      {"__rshift__", shift_row<false>},
      {"ldexp", in_f32<ldexp_row>},
      {"float_power", float_power_row},
      {"round", in_f32<round_row>},
      {"special_round", in_f32<round_row>},
      {"celu", in_f32<celu_row>},
      {"rrelu", in_f32<rrelu_row>},
      {"rrelu_with_noise", in_f32<rrelu_row>},
      {"rrelu_with_noise_functional", in_f32<rrelu_row>},
      {"log_sigmoid_forward", in_f32<log_sigmoid_row>},
      {"complex", refuse_complex},
      {"view_as_complex", refuse_complex},
      {"polar", refuse_complex},
  };
}

}  // namespace stepgraph::pt2
