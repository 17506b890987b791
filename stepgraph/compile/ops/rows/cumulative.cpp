// SPDX-License-Identifier: Apache-2.0
// Cumulative sum, product and log-sum-exp along a dim.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/scans.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

std::vector<TensorType> infer_cumulative(const InferRequest& request) {
  const auto& op = std::get<Cumulative>(request.op);
  const TensorType& x = request.inputs[0];
  check_dim(name(request.op), op.dim, x);
  switch (op.kind) {
    case CumulativeKind::Sum: case CumulativeKind::Product: case CumulativeKind::Max: case CumulativeKind::Min:
      if (x.dtype == DType::Bool) throw UserError(fmt::format("{}: found {}, wanted numbers (convert first)", name(request.op), text(x)));
      break;
    case CumulativeKind::LogSumExp: check_floating(name(request.op), x); break;
  }
  return {{x.dtype, x.shape, {}}};
}

/// log(e^a + e^b) with the greater one taken out. Equal infinities would give inf - inf.
double log_add_exp(double a, double b) {
  if (a != a || b != b) return a + b;
  const double high = std::max(a, b), low = std::min(a, b);
  if (std::isinf(high)) return high;
  return high + std::log1p(std::exp(low - high));
}

/// One index of the outer dims at a time, in f64 or i64 and in place.
template <class T, class F>
void scan_as(const Literal& x, size_t dim, bool reverse, T start, Literal& result, F combine) {
  const int64_t length = x.sizes()[dim], inner = row_major_strides(x.sizes())[dim], slab = length * inner;
  const size_t width = size_bytes(x.dtype());
  std::byte* data = result.mutable_data();
  std::vector<T> values(static_cast<size_t>(slab));
  for (int64_t first = 0; first < x.count(); first += slab) {
    load_elements(x, first, slab, values.data());
    for (int64_t column = 0; column < inner; ++column) {
      T running = start;
      for (int64_t step = 0; step < length; ++step) {
        T& value = values[static_cast<size_t>((reverse ? length - 1 - step : step) * inner + column)];
        value = running = combine(running, value);
      }
    }
    store_elements(x.dtype(), data + static_cast<size_t>(first) * width, slab, values.data());
  }
}

std::vector<Literal> evaluate_cumulative(const EvaluateRequest& request) {
  const auto& op = std::get<Cumulative>(request.op);
  const Literal& x = request.inputs[0];
  Literal result = Literal::uninitialised(x.dtype(), x.sizes());
  if (x.count() == 0) return {result};
  const auto dim = static_cast<size_t>(op.dim);
  const bool floating = is_floating(x.dtype());
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (op.kind) {
    case CumulativeKind::Sum:
      if (floating) scan_as<double>(x, dim, op.reverse, 0, result, [](double a, double b) { return a + b; });
      else scan_as<int64_t>(x, dim, op.reverse, 0, result, wrap_add);
      break;
    case CumulativeKind::Product:
      if (floating) scan_as<double>(x, dim, op.reverse, 1, result, [](double a, double b) { return a * b; });
      else scan_as<int64_t>(x, dim, op.reverse, 1, result, wrap_multiply);
      break;
    case CumulativeKind::LogSumExp: scan_as<double>(x, dim, op.reverse, -infinity, result, log_add_exp); break;
    case CumulativeKind::Max:
      if (floating) scan_as<double>(x, dim, op.reverse, -infinity, result, [](double a, double b) { return a > b || a != a ? a : b; });
      else scan_as<int64_t>(x, dim, op.reverse, std::numeric_limits<int64_t>::min(), result, [](int64_t a, int64_t b) { return std::max(a, b); });
      break;
    case CumulativeKind::Min:
      if (floating) scan_as<double>(x, dim, op.reverse, infinity, result, [](double a, double b) { return a < b || a != a ? a : b; });
      else scan_as<int64_t>(x, dim, op.reverse, std::numeric_limits<int64_t>::max(), result, [](int64_t a, int64_t b) { return std::min(a, b); });
      break;
  }
  return {result};
}

// ---- gradients, for a scan from the front

/// dx[k] = p[k] s[k] with p the product before k, and s[k] = g[k] + x[k+1] s[k+1].
Value cumprod_gradient(const Value& x, const Value& g, int64_t dim) {
  const Value before = cumprod(shifted(x, dim, false, 1), dim);
  return before * linear_recurrence(shifted(x, dim, true, 1), g, dim);
}

/// dx[k] = e^(x[k] - y[k]) d[k] with d[k] = g[k] + e^(y[k] - y[k+1]) d[k+1]: y ascends and is at least x, so no factor is above 1. While y is -inf nothing
/// has been summed, and its difference to anything is kept from the exponential.
Value logcumsumexp_gradient(const Value& x, const Value& y, const Value& g, int64_t dim) {
  const Value nothing = equal(y, -std::numeric_limits<double>::infinity());
  const Value zero = zeros_like(y);
  const auto factor = [&](const Value& upper, const Value& lower) {
    return where(nothing, zero, exp(where(nothing, zero, upper - lower)));
  };
  const Value carry = factor(y, shifted(y, dim, true, std::numeric_limits<double>::infinity()));  // beyond the end: e^-inf
  return factor(x, y) * linear_recurrence(carry, g, dim);
}

std::vector<std::optional<Value>> cumulative_gradient(const GradientRequest& request) {
  const auto& op = std::get<Cumulative>(request.op);
  Value x = request.inputs[0], y = request.results[0], g = *request.result_gradients[0];
  if (!is_floating(x.dtype())) return {std::nullopt};
  if (op.kind == CumulativeKind::Sum) return {cumsum(g, op.dim, !op.reverse)};
  const auto turned = [&](const Value& value) { return op.reverse ? flip(value, {op.dim}) : value; };
  x = turned(x), y = turned(y), g = turned(g);
  const auto finished = [&](const Value& wide) { return convert(turned(wide), request.inputs[0].dtype()); };
  switch (op.kind) {
    case CumulativeKind::Product: return {finished(cumprod_gradient(widened(x), widened(g), op.dim))};
    case CumulativeKind::LogSumExp: return {finished(logcumsumexp_gradient(widened(x), widened(y), widened(g), op.dim))};
    case CumulativeKind::Max: case CumulativeKind::Min: return {turned(scatter_add(zeros_like(x), op.dim, running_position(x, y, op.dim), g))};
    case CumulativeKind::Sum: break;  // above
  }
  return {std::nullopt};
}

ShardingRule cumulative_rule(const ShardingRequest& request) {
  const auto& op = std::get<Cumulative>(request.op);
  ShardingRule rule = elementwise_rule(request, {});
  for (int factor : rule.operands[0][static_cast<size_t>(op.dim)]) rule.factors[static_cast<size_t>(factor)].kind = FactorKind::Replicate;
  if (op.kind == CumulativeKind::Sum) rule.linear_groups = {{0}};
  return rule;
}

Cost cumulative_cost(const CostRequest& request) {
  return elementwise_cost(request, std::get<Cumulative>(request.op).kind == CumulativeKind::LogSumExp ? 20 : 1);
}

}  // namespace

OpInfo row_of(OpType<Cumulative>) {
  OpInfo row;
  row.infer = infer_cumulative;
  row.evaluate = evaluate_cumulative;
  row.gradient = cumulative_gradient;
  row.sharding_rule = cumulative_rule;
  row.cost = cumulative_cost;
  return row;
}

}  // namespace stepgraph
