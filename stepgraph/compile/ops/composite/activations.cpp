// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/activations.h"

#include <limits>
#include <numbers>

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/composite/precision.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

Value floating(const char* name, const Value& x) {
  if (!is_floating(x.dtype())) fail(*x.builder, fmt::format("{}: found {}, wanted a floating dtype", name, text(x.type())));
  return x;
}

/// A composite of one value.
Value apply(const char* tag, const Value& x, const CompositeBody& body, const CompositeBody& gradient = nullptr) {
  const Value inputs[] = {x};
  return composite(*x.builder, tag, inputs, body, gradient)[0];
}

/// y * (g - sum(g * y)): the gradient of every softmax whose values are y.
std::vector<Value> softmax_gradient(const std::vector<Value>& in, int64_t dim) {
  const Value y = widened(in[1]), g = widened(in[2]);
  const Value product = g * y;
  return {narrowed(product - y * sum(product, {dim}, true), in[0].dtype())};
}

std::vector<Value> softmax_body(const Value& in, int64_t dim, bool safe) {
  const Value x = widened(in);
  Value top = stop_gradient(amax(x, {dim}, true));
  if (safe) top = where(equal(top, -std::numeric_limits<double>::infinity()), zeros_like(top), top);
  const Value e = exp(x - top);
  Value total = sum(e, {dim}, true);
  if (safe) total = where(equal(total, 0.0), ones_like(total), total);
  return {narrowed(e / total, in.dtype())};
}

Value any_softmax(const char* tag, const At& x, int64_t dim, bool safe) {
  const PlaceScope place(x);
  const int64_t d = dim_of(tag, floating(tag, x.value), dim);
  return apply(
      tag, autocast(tag, x.value), [=](Builder&, const std::vector<Value>& in) { return softmax_body(in[0], d, safe); },
      [=](Builder&, const std::vector<Value>& in) { return softmax_gradient(in, d); });
}

}  // namespace

Value softmax(At x, int64_t dim) { return any_softmax("softmax", x, dim, false); }
Value safe_softmax(At x, int64_t dim) { return any_softmax("safe_softmax", x, dim, true); }

Value log_softmax(At x, int64_t dim) {
  const PlaceScope place(x);
  const int64_t d = dim_of("log_softmax", floating("log_softmax", x.value), dim);
  const auto body = [d](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value wide = widened(in[0]);
    const Value shifted = wide - stop_gradient(amax(wide, {d}, true));
    return {narrowed(shifted - log(sum(exp(shifted), {d}, true)), in[0].dtype())};
  };
  const auto gradient = [d](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value g = widened(in[2]);
    return {narrowed(g - exp(widened(in[1])) * sum(g, {d}, true), in[0].dtype())};
  };
  return apply("log_softmax", autocast("log_softmax", x.value), body, gradient);
}

namespace {

std::vector<Value> gelu_exact(const Value& in) {
  const Value x = widened(in);
  return {narrowed(x * 0.5 * (erf(x * (std::numbers::sqrt2 * 0.5)) + 1.0), in.dtype())};
}
std::vector<Value> gelu_exact_gradient(const Value& in, const Value& result_gradient) {
  const Value x = widened(in);
  const Value cumulative = (erf(x * (std::numbers::sqrt2 * 0.5)) + 1.0) * 0.5;
  const Value density = exp(x * x * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  return {narrowed(widened(result_gradient) * (cumulative + x * density), in.dtype())};
}

constexpr double cubic = 0.044715;
constexpr double slope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

/// One formula for both directions: what computes both in one place computes it once.
Value gelu_tanh_of(const Value& x) { return tanh((x + x * x * x * cubic) * slope); }
std::vector<Value> gelu_tanh(const Value& in) {
  const Value x = widened(in);
  const Value t = gelu_tanh_of(x);
  return {narrowed(x * 0.5 * (t + 1.0), in.dtype())};
}
std::vector<Value> gelu_tanh_gradient(const Value& in, const Value& result_gradient) {
  const Value x = widened(in);
  const Value t = gelu_tanh_of(x);
  const Value inner = (x * x * (3 * cubic) + 1.0) * slope;
  return {narrowed(widened(result_gradient) * ((t + 1.0) + x * (1.0 - t * t) * inner) * 0.5, in.dtype())};
}

}  // namespace

Value gelu(At x, GeluKind kind) {
  const PlaceScope place(x);
  floating("gelu", x.value);
  switch (kind) {
    case GeluKind::Exact:
      return apply(
          "gelu", x.value, [](Builder&, const std::vector<Value>& in) { return gelu_exact(in[0]); },
          [](Builder&, const std::vector<Value>& in) { return gelu_exact_gradient(in[0], in[2]); });
    case GeluKind::Tanh:
      return apply(
          "gelu_tanh", x.value, [](Builder&, const std::vector<Value>& in) { return gelu_tanh(in[0]); },
          [](Builder&, const std::vector<Value>& in) { return gelu_tanh_gradient(in[0], in[2]); });
  }
  fail(*x.value.builder, "gelu: unknown kind");
}

Value silu(At x) {
  const PlaceScope place(x);
  floating("silu", x.value);
  const auto body = [](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value wide = widened(in[0]);
    return {narrowed(wide * sigmoid(wide), in[0].dtype())};
  };
  // Without a product of x and the result's gradient, which may overflow before a factor of zero.
  const auto gradient = [](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value wide = widened(in[0]), s = sigmoid(wide);
    return {narrowed(widened(in[2]) * (s * (wide * (1.0 - s) + 1.0)), in[0].dtype())};
  };
  return apply("silu", x.value, body, gradient);
}

namespace {

/// log(1 + e^x) for any x.
Value softplus(const Value& x) { return maximum(x, zeros_like(x)) + log1p(exp(neg(abs(x)))); }

}  // namespace

Value mish(At x) {
  const PlaceScope place(x);
  floating("mish", x.value);
  const auto body = [](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value wide = widened(in[0]);
    return {narrowed(wide * tanh(softplus(wide)), in[0].dtype())};
  };
  const auto gradient = [](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value wide = widened(in[0]), t = tanh(softplus(wide));
    return {narrowed(widened(in[2]) * (t + wide * (sigmoid(wide) * (1.0 - t * t))), in[0].dtype())};
  };
  return apply("mish", x.value, body, gradient);
}

Value swiglu(At gate, At up) {
  const PlaceScope place(gate);
  return silu(gate.value) * up.value;
}

Value dropout(At x, double rate, Value key) {
  const PlaceScope place(x);
  if (!(rate >= 0 && rate <= 1)) fail(*x.value.builder, fmt::format("dropout: rate {} is outside [0, 1]", rate));
  floating("dropout", x.value);
  if (rate == 0) return x.value;
  // At rate 1 everything is dropped; a factor of 1/0 would turn the gradient into NaN.
  const double factor = rate == 1 ? 0.0 : 1 / (1 - rate);
  const auto body = [=](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value keep = greater_equal(random_uniform(in[1], DType::F32, in[0].shape()), rate);
    return {where(keep, in[0] * factor, zeros_like(in[0]))};
  };
  const Value inputs[] = {x.value, key};
  return composite(*x.value.builder, "dropout", inputs, body)[0];
}

}  // namespace stepgraph
