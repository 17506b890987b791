// SPDX-License-Identifier: Apache-2.0
// Functions of torch.special, common divisors, and rounding to what a quantised tensor would hold.
#include <cmath>
#include <numbers>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// A function of one number, made in f64 and rounded once, with a gradient of its own: (x, y) -> dy/dx.
template <class Function, class Derivative>
Value special_function(const std::string& tag, const Value& x, const Function& function, const Derivative& derivative) {
  const DType dtype = x.dtype();
  const CompositeBody body = [&](Builder&, const std::vector<Value>& in) { return std::vector<Value>{convert(function(convert(in[0], DType::F64)), dtype)}; };
  const CompositeBody gradient = [&](Builder&, const std::vector<Value>& in) { return std::vector<Value>{in[2] * derivative(in[0], in[1])}; };
  return composite(*x.builder, tag, std::vector<Value>{x}, body, gradient)[0];
}

/// exp(x²) erfc(x) of f64: by the product, and for large x, where it has no digits left, by the asymptotic series.
Value scaled_erfc_wide(const Value& x) {
  constexpr double far = 10;
  constexpr int terms = 16;
  const Value is_far = greater(x, far), near = where(is_far, full_like(x, far), x), away = where(is_far, x, full_like(x, far));
  const Value u = 0.5 / (away * away);
  Value series = ones_like(x);
  for (int k = terms; k >= 1; --k) series = 1.0 - series * u * static_cast<double>(2 * k - 1);
  return where(is_far, series / (away * std::sqrt(std::numbers::pi)), exp(near * near) * unary(UnaryKind::Erfc, near));
}
Value scaled_erfc(const Value& x) {
  return special_function("erfcx", x, scaled_erfc_wide, [](const Value& at, const Value& y) { return 2.0 * at * y - 2.0 / std::sqrt(std::numbers::pi); });
}
/// The logarithm of the normal distribution.
Value log_ndtr(const Value& x) {
  const auto value = [](const Value& at) {
    const Value t = at * (1 / std::numbers::sqrt2), is_low = less(at, -1.0), low = where(is_low, t, full_like(t, -1)), high = where(is_low, zeros_like(t), t);
    return where(is_low, log(scaled_erfc_wide(neg(low)) * 0.5) - low * low, log1p(unary(UnaryKind::Erfc, high) * -0.5));
  };
  return special_function("log_ndtr", x, value,
                          [](const Value& at, const Value&) { return std::sqrt(2 / std::numbers::pi) / scaled_erfc(at * (-1 / std::numbers::sqrt2)); });
}

/// Modified Bessel functions of order 0 or 1 of f64: by the power series, whose terms are all positive, and for large x by the asymptotic one.
Value bessel_wide(const Value& x, int order) {
  constexpr double far = 25;
  constexpr int near_terms = 50, far_terms = 20;
  const Value size = abs(x), is_far = greater(size, far), near = where(is_far, full_like(x, far), x), away = where(is_far, size, full_like(x, far));
  const Value t = near * near * 0.25, u = 1.0 / away;
  Value low = ones_like(x), high = ones_like(x);
  for (int k = near_terms; k >= 1; --k) low = 1.0 + low * t * (1.0 / (k * (k + order)));
  for (int k = far_terms; k >= 1; --k) high = 1.0 + high * u * (((2.0 * k - 1) * (2.0 * k - 1) - 4.0 * order) / (8.0 * k));
  if (order == 1) low = low * near * 0.5;
  Value grown = exp(away) / sqrt(away * (2 * std::numbers::pi)) * high;
  if (order == 1) grown = where(less(x, 0.0), neg(grown), grown);
  return where(is_far, grown, low);
}
/// Without a gradient of its own: each order's gradient holds the other.
Value plain_bessel(const Value& x, int order) { return convert(bessel_wide(convert(x, DType::F64), order), x.dtype()); }
Value bessel_0(const Value& x) {
  return special_function("i0", x, [](const Value& at) { return bessel_wide(at, 0); }, [](const Value& at, const Value&) { return plain_bessel(at, 1); });
}
Value bessel_1(const Value& x) {
  return special_function(
      "i1", x, [](const Value& at) { return bessel_wide(at, 1); },
      [](const Value& at, const Value& y) {
        const Value is_zero = equal(at, 0.0);
        return where(is_zero, full_like(at, 0.5), plain_bessel(at, 0) - y / where(is_zero, ones_like(at), at));
      });
}
template <Value (*function)(const Value&)>
void special_row(OperatorCall& call) {
  call.result(function(as_floating(call.tensor("self"))));
}

/// Euclid's steps, as many as the largest 64-bit numbers take.
Value common_divisor(const Value& a, const Value& b) {
  constexpr int64_t steps = 92;
  Builder& outer = *a.builder;
  Module& module = outer.module();
  Loop loop;
  loop.body = module.add_graph("gcd");
  loop.trip_count = steps;
  loop.symbol = iteration_symbol(module);
  loop.carried = 2;
  Builder body(module, loop.body);
  const Value x = body.input(a.type()), y = body.input(b.type()), is_done = equal(y, 0.0);
  body.output(where(is_done, x, y));
  body.output(where(is_done, y, remainder(x, where(is_done, ones_like(y), y))));
  return outer.emit(loop, {a, b})[0];
}
std::pair<Value, Value> integer_pair(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.tensor("other");
  const DType dtype = result_type({a, b});
  if (!is_integer(dtype)) call.fail("found " + text(a.type()) + " and " + text(b.type()) + ", wanted integers");
  const Value x = convert(a, dtype), y = convert(b, dtype);
  return {abs(broadcast_pair(x, y.shape())), abs(broadcast_pair(y, x.shape()))};
}
void gcd_row(OperatorCall& call) {
  const auto [a, b] = integer_pair(call);
  call.result(common_divisor(a, b));
}
void lcm_row(OperatorCall& call) {
  const auto [a, b] = integer_pair(call);
  const Value divisor = common_divisor(a, b);
  call.result(floor_divide(a, where(equal(divisor, 0.0), ones_like(divisor), divisor)) * b);
}

/// x as a tensor of small integers would hold it; the gradient passes where no number is cut off. Results: that, and where.
void fake_quantized(OperatorCall& call, const Value& scale, const Value& zero_point) {
  const Value x = call.tensor("self");
  const double least = static_cast<double>(call.integer("quant_min")), most = static_cast<double>(call.integer("quant_max"));
  const auto quantized = [](const std::vector<Value>& in) { return round(in[0] * (1.0 / in[1])) + in[2]; };
  const auto is_kept = [=](const Value& q) { return logical_and(greater_equal(q, least), less_equal(q, most)); };
  const CompositeBody body = [&](Builder&, const std::vector<Value>& in) {
    const Value q = quantized(in);
    return std::vector<Value>{(clamp(q, least, most) - in[2]) * in[1], is_kept(q)};
  };
  const CompositeBody gradient = [&](Builder&, const std::vector<Value>& in) {
    return std::vector<Value>{where(in[4], in[5], zeros_like(in[5])), zeros_like(in[1]), zeros_like(in[2])};
  };
  const Value wide_scale = broadcast_to(convert(scale, x.dtype()), x.shape()), wide_zero = broadcast_to(convert(zero_point, x.dtype()), x.shape());
  const std::vector<Value> found = composite(call.builder(), "fake_quantize", std::vector<Value>{x, wide_scale, wide_zero}, body, gradient);
  call.result(found[0]);
  if (call.node().outputs.size() > 1) call.result(found[1]);
}
void fake_quantize_tensor_row(OperatorCall& call) {
  const auto given = [&](const char* argument) { return as_value(call.builder(), call.operand(argument), DType::F32); };
  fake_quantized(call, reshape(given("scale"), {}), reshape(given("zero_point"), {}));
}
void fake_quantize_channel_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t axis = call.wrap(call.integer("axis"), x.rank());
  Shape along(static_cast<size_t>(x.rank()), Dim(1));
  along[static_cast<size_t>(axis)] = x.dim(axis);
  fake_quantized(call, reshape(call.tensor("scale"), along), reshape(call.tensor("zero_point"), along));
}

}  // namespace

std::vector<NamedRow> special_rows() {
  return {
      {"special_erfcx", special_row<scaled_erfc>},
      {"special_log_ndtr", special_row<log_ndtr>},
      {"i0", special_row<bessel_0>},
      {"special_i1", special_row<bessel_1>},
      {"gcd", gcd_row},
      {"lcm", lcm_row},
      {"fake_quantize_per_tensor_affine", fake_quantize_tensor_row},
      {"fake_quantize_per_tensor_affine_cachemask", fake_quantize_tensor_row},
      {"_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", fake_quantize_tensor_row},
      {"fake_quantize_per_channel_affine", fake_quantize_channel_row},
      {"fake_quantize_per_channel_affine_cachemask", fake_quantize_channel_row},
  };
}

}  // namespace stepgraph::pt2
