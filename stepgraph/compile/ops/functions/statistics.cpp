// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/indexing.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/functions/shape.h"

namespace stepgraph {
namespace {

Dims reduced_dims(std::string_view function, const Value& x, const Dims& dims) { return dims.empty() ? all_dims(x) : dims_of(function, x, dims); }

/// x's shape with the (ascending) dims set to 1.
Shape kept_shape(const Value& x, const Dims& dims) {
  Shape shape = x.shape();
  for (int64_t dim : dims) shape[static_cast<size_t>(dim)] = 1;
  return shape;
}

/// Gives a reduced value its dims back, of size 1.
Value keep(const Value& reduced, const Value& x, const Dims& dims, bool keep_dims) {
  return keep_dims && !dims.empty() ? reshape(reduced, kept_shape(x, dims)) : reduced;
}

Value as_number(const Value& x) { return x.dtype() == DType::Bool ? convert(x, DType::I64) : x; }

Dim extent(const Value& x, const Dims& dims) {
  Dim count = 1;
  for (int64_t dim : dims) count = count * x.shape()[static_cast<size_t>(dim)];
  return count;
}

Value arg_reduce(ArgReduceKind kind, std::string_view function, const At& x, int64_t dim, bool keep_dims) {
  const PlaceScope place(x);
  dim = dim_of(function, x.value, dim);
  return keep(x.value.builder->emit_one(ArgReduce{kind, dim}, {as_number(x.value)}), x.value, {dim}, keep_dims);
}

Value cumulative(CumulativeKind kind, std::string_view function, const At& x, int64_t dim, bool reverse) {
  const PlaceScope place(x);
  if (x->rank() == 0) fail(*x.value.builder, fmt::format("{}: found a scalar, wanted at least one dim", function));
  const Value number = kind == CumulativeKind::LogSumExp && !is_floating(x->dtype()) ? convert(x.value, DType::F32) : as_number(x.value);
  const Value operand = autocast(function, number);
  return x.value.builder->emit_one(Cumulative{kind, dim_of(function, x.value, dim), reverse}, {operand});
}

}  // namespace

// ---- reductions

Value reduce(ReduceKind kind, At x, Dims dims, bool keep_dims) {
  const PlaceScope place(x);
  dims = reduced_dims(name(kind), x.value, dims);
  Value operand = x.value;
  switch (kind) {
    case ReduceKind::Sum: operand = autocast("sum", as_number(operand)); break;
    case ReduceKind::Product: operand = autocast("prod", as_number(operand)); break;
    case ReduceKind::Max: case ReduceKind::Min: operand = as_number(operand); break;
    case ReduceKind::Any: case ReduceKind::All: if (operand.dtype() != DType::Bool) operand = not_equal(operand, 0.0); break;
  }
  return keep(x.value.builder->emit_one(Reduce{kind, dims}, {operand}), x.value, dims, keep_dims);
}
Value sum(At x, Dims dims, bool keep_dims) { return reduce(ReduceKind::Sum, x, std::move(dims), keep_dims); }
Value prod(At x, Dims dims, bool keep_dims) { return reduce(ReduceKind::Product, x, std::move(dims), keep_dims); }
Value amax(At x, Dims dims, bool keep_dims) { return reduce(ReduceKind::Max, x, std::move(dims), keep_dims); }
Value amin(At x, Dims dims, bool keep_dims) { return reduce(ReduceKind::Min, x, std::move(dims), keep_dims); }
Value any(At x, Dims dims, bool keep_dims) { return reduce(ReduceKind::Any, x, std::move(dims), keep_dims); }
Value all(At x, Dims dims, bool keep_dims) { return reduce(ReduceKind::All, x, std::move(dims), keep_dims); }

Value mean(At x, Dims dims, bool keep_dims) {
  const PlaceScope place(x);
  dims = reduced_dims("mean", x.value, dims);
  const DType wanted = is_floating(x->dtype()) ? x->dtype() : DType::F32;
  // A sum of many values rounds badly, or overflows, in 16 bits although their mean does not.
  const DType inner = size_bytes(wanted) == 2 ? DType::F32 : wanted;
  const Value total = sum(convert(x.value, inner), dims);
  const Dim count = extent(x.value, dims);
  Builder& builder = *x.value.builder;
  const Value divisor = count.is_constant() ? scalar(builder, inner, static_cast<double>(count.constant())) : size_value(builder, inner, count);
  return keep(convert(total / divisor, wanted), x.value, dims, keep_dims);
}

MeanVariance moments(At x, Dims dims, bool keep_dims) {
  const PlaceScope place(x);
  dims = reduced_dims("moments", x.value, dims);
  const Value operand = is_floating(x->dtype()) ? x.value : convert(x.value, DType::F32);
  const std::vector<Value> results = x.value.builder->emit(Moments{dims}, {operand});
  return {keep(results.at(0), x.value, dims, keep_dims), keep(results.at(1), x.value, dims, keep_dims)};
}

Value argmax(At x, int64_t dim, bool keep_dims) { return arg_reduce(ArgReduceKind::ArgMax, "argmax", x, dim, keep_dims); }
Value argmin(At x, int64_t dim, bool keep_dims) { return arg_reduce(ArgReduceKind::ArgMin, "argmin", x, dim, keep_dims); }
Value cumsum(At x, int64_t dim, bool reverse) { return cumulative(CumulativeKind::Sum, "cumsum", x, dim, reverse); }
Value cumprod(At x, int64_t dim, bool reverse) { return cumulative(CumulativeKind::Product, "cumprod", x, dim, reverse); }
Value logcumsumexp(At x, int64_t dim, bool reverse) { return cumulative(CumulativeKind::LogSumExp, "logcumsumexp", x, dim, reverse); }

namespace {

Value wide_norm(const Value& v, double p, const Dims& dims, bool keep_dims) {
  if (v.rank() == 0) return p == 0 ? convert(not_equal(v, 0.0), v.dtype()) : abs(v);
  if (p == INFINITY) return amax(abs(v), dims, keep_dims);
  if (p == -INFINITY) return amin(abs(v), dims, keep_dims);
  if (p == 0) return sum(convert(not_equal(v, 0.0), v.dtype()), dims, keep_dims);
  if (p == 1) return sum(abs(v), dims, keep_dims);
  // Zeros are kept from the powers, whose gradients there are infinite or not a number.
  Value powers = v * v;
  if (p != 2) {
    const Value is_zero = equal(v, 0.0), size = pow(abs(where(is_zero, ones_like(v), v)), p);
    powers = where(is_zero, full_like(v, p > 0 ? 0 : INFINITY), size);
  }
  const Value total = sum(powers, dims, keep_dims);
  const Value flat = p > 0 ? equal(total, 0.0) : equal(total, INFINITY);
  const Value kept = where(flat, ones_like(total), total);
  return where(flat, zeros_like(total), p == 2 ? sqrt(kept) : pow(kept, 1 / p));
}

}  // namespace

Value vector_norm(At x, double p, Dims dims, bool keep_dims) {
  const PlaceScope place(x);
  const Value v = autocast("linalg_vector_norm", x.value);
  const AutocastScope off(*v.builder, {});
  return convert(wide_norm(widened(v), p, dims, keep_dims), v.dtype());
}

// ---- order

Sorted sort(At x, int64_t dim, bool descending) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t d = dim_of("sort", v, dim);
  const Value indices = v.builder->emit_one(ArgSort{d, descending}, {v});
  return {gather(v, d, indices), indices};
}

Sorted pick(At x, PickKind kind, int64_t count, int64_t dim) {
  const PlaceScope place(x);
  const Value indices = x.value.builder->emit_one(Pick{kind, dim_of("pick", x.value, dim), count}, {x.value});
  return {gather(x.value, dim, indices), indices};
}

Sorted topk(At x, int64_t k, int64_t dim, bool largest) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t d = dim_of("topk", v, dim);
  if (k < 0 || (v.dim(d).is_constant() && k > v.dim(d).constant()))
    throw UserError("topk: found k = " + std::to_string(k) + ", dim " + std::to_string(d) + " of " + text(v.type()) + " has fewer elements", v.builder->place());
  return pick(v, largest ? PickKind::Largest : PickKind::Smallest, k, d);
}

}  // namespace stepgraph
