// SPDX-License-Identifier: Apache-2.0
// Reductions, shape and data movement.
#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions_place.h"
#include "stepgraph/compile/ops/row_parts.h"

namespace stepgraph {
namespace {

Dims all_dims(const Value& x) {
  Dims dims(static_cast<size_t>(x.rank()));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  return dims;
}

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

// ---- shape and movement

Value broadcast_to(At x, const Shape& shape) {
  const PlaceScope place(x);
  Builder& builder = *x.value.builder;
  if (x->shape().size() > shape.size()) fail(builder, fmt::format("broadcast: {} has more dims than {}", text(x->type()), text(shape)));
  return stretch(x.value, shape);
}

Value broadcast_in_dim(At x, const Shape& shape, Dims dims) {
  const PlaceScope place(x);
  return x.value.builder->emit_one(Broadcast{shape, std::move(dims)}, {x.value});
}

Value reshape(At x, const Shape& shape) {
  const PlaceScope place(x);
  if (x->shape() == shape) return x.value;
  return x.value.builder->emit_one(Reshape{shape}, {x.value});
}

Value flatten(At x, int64_t first, int64_t last) {
  const PlaceScope place(x);
  if (x->rank() == 0) return reshape(x.value, {1});
  first = dim_of("flatten", x.value, first), last = dim_of("flatten", x.value, last);
  if (first > last) fail(*x.value.builder, fmt::format("flatten: first dim {} comes after last dim {}", first, last));
  const Shape& from = x->shape();
  Shape shape(from.begin(), from.begin() + first);
  shape.push_back(element_count(Shape(from.begin() + first, from.begin() + last + 1)));
  shape.insert(shape.end(), from.begin() + last + 1, from.end());
  return reshape(x.value, shape);
}

Value unflatten(At x, int64_t dim, const Shape& sizes) {
  const PlaceScope place(x);
  dim = dim_of("unflatten", x.value, dim);
  const Dim& size = x->shape()[static_cast<size_t>(dim)];
  const SymbolTable& symbols = x.value.builder->module().symbols;
  if (symbols.equal(element_count(sizes), size) != Truth::True) {
    fail(*x.value.builder, fmt::format("unflatten: dim {} of {} does not split into {}{}", dim, text(x->type()), text(sizes),
                                       ranges_of(x.value.builder->module(), x->shape(), sizes)));
  }
  Shape shape = x->shape();
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin() + dim, sizes.begin(), sizes.end());
  return reshape(x.value, shape);
}

Value squeeze(At x, Dims dims) {
  const PlaceScope place(x);
  if (dims.empty()) {
    for (int64_t dim = 0; dim < x->rank(); ++dim) {
      if (x->dim(dim) == Dim(1)) dims.push_back(dim);
    }
  }
  dims = dims_of("squeeze", x.value, dims);
  Shape shape = x->shape();
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    if (shape[static_cast<size_t>(*dim)] != Dim(1)) fail(*x.value.builder, fmt::format("squeeze: dim {} of {} is not 1", *dim, text(x->type())));
    shape.erase(shape.begin() + *dim);
  }
  return reshape(x.value, shape);
}

Value unsqueeze(At x, int64_t dim) {
  const PlaceScope place(x);
  const int64_t rank = x->rank() + 1;
  if (dim < -rank || dim >= rank) fail(*x.value.builder, fmt::format("unsqueeze: dim {} is out of range for {}", dim, text(x->type())));
  Shape shape = x->shape();
  shape.insert(shape.begin() + (dim < 0 ? dim + rank : dim), Dim(1));
  return reshape(x.value, shape);
}

Value transpose(At x, int64_t a, int64_t b) {
  const PlaceScope place(x);
  Dims permutation = all_dims(x.value);
  a = dim_of("transpose", x.value, a), b = dim_of("transpose", x.value, b);
  std::swap(permutation[static_cast<size_t>(a)], permutation[static_cast<size_t>(b)]);
  return permute(x.value, std::move(permutation));
}

Value permute(At x, Dims permutation) {
  const PlaceScope place(x);
  for (int64_t& dim : permutation) dim = dim_of("permute", x.value, dim);
  if (permutation == all_dims(x.value)) return x.value;
  return x.value.builder->emit_one(Transpose{std::move(permutation)}, {x.value});
}

Value flip(At x, Dims dims) {
  const PlaceScope place(x);
  dims = dims_of("flip", x.value, dims);
  return dims.empty() ? x.value : x.value.builder->emit_one(Reverse{std::move(dims)}, {x.value});
}

Value slice(At x, int64_t dim, const Dim& start, const Dim& limit, int64_t stride) {
  const PlaceScope place(x);
  const auto at = static_cast<size_t>(dim_of("slice", x.value, dim));
  Slice op{Shape(x->shape().size(), Dim(0)), x->shape(), std::vector<int64_t>(x->shape().size(), 1)};
  op.starts[at] = start, op.limits[at] = limit, op.strides[at] = stride;
  return x.value.builder->emit_one(std::move(op), {x.value});
}

Value select(At x, int64_t dim, int64_t index) {
  const PlaceScope place(x);
  dim = dim_of("select", x.value, dim);
  const Dim& size = x->dim(dim);
  const Dim start = index < 0 ? size + index : Dim(index);
  const SymbolTable& symbols = x.value.builder->module().symbols;
  if (symbols.less_or_equal(0, start) != Truth::True || symbols.less_or_equal(start + 1, size) != Truth::True) {
    fail(*x.value.builder, fmt::format("select: index {} is out of range for dim {} of {}{}", index, dim, text(x->type()), ranges_of(x.value.builder->module(), {size})));
  }
  const Value piece = slice(x.value, dim, start, start + 1);
  Shape shape = x->shape();
  shape.erase(shape.begin() + dim);
  return reshape(piece, shape);
}

Value pad(At x, const Shape& low, const Shape& high, double value) {
  const PlaceScope place(x);
  return x.value.builder->emit_one(Pad{low, high, std::vector<int64_t>(x->shape().size(), 0)}, {x.value, scalar(*x.value.builder, x->dtype(), value)});
}

Value concatenate(std::span<const Value> values, int64_t dim, std::source_location location) {
  if (values.empty()) throw UserError("concatenate: no operands, at least 1 wanted", place_of(location));
  const PlaceScope place(values[0], location);
  DType dtype = values[0].dtype();
  for (const Value& value : values) {
    check_same_graph("concatenate", values[0], value);
    dtype = promote(dtype, value.dtype());
  }
  std::vector<Value> operands;
  for (const Value& value : values) operands.push_back(convert(value, dtype));
  return values[0].builder->emit(Concatenate{dim_of("concatenate", values[0], dim)}, operands).at(0);
}

std::vector<Value> split(At x, int64_t dim, int64_t parts) {
  const PlaceScope place(x);
  dim = dim_of("split", x.value, dim);
  const Dim& size = x->dim(dim);
  const SymbolTable& symbols = x.value.builder->module().symbols;
  if (parts < 1 || symbols.divides(parts, size) != Truth::True) {
    fail(*x.value.builder, fmt::format("split: dim {} of {} does not split into {} equal parts{}", dim, text(x->type()), parts, ranges_of(x.value.builder->module(), {size})));
  }
  const Dim piece = symbols.simplify(floordiv(size, parts));
  std::vector<Value> pieces;
  for (int64_t i = 0; i < parts; ++i) pieces.push_back(slice(x.value, dim, piece * i, piece * (i + 1)));
  return pieces;
}

Value index_select(At x, int64_t dim, At indices) {
  const PlaceScope place(x);
  check_same_graph("index_select", x.value, indices.value);
  return x.value.builder->emit_one(IndexSelect{dim_of("index_select", x.value, dim)}, {x.value, indices.value});
}

Value index_add(At base, int64_t dim, At indices, At updates) {
  const PlaceScope place(base);
  check_same_graph("index_add", base.value, indices.value);
  const Operands same = same_dtype("index_add", base.value, updates.value);
  return base.value.builder->emit_one(IndexAdd{dim_of("index_add", base.value, dim)}, {same.a, indices.value, same.b});
}

Value gather(At x, int64_t dim, At index) {
  const PlaceScope place(x);
  check_same_graph("gather", x.value, index.value);
  return x.value.builder->emit_one(Gather{dim_of("gather", x.value, dim)}, {x.value, index.value});
}

Value scatter_add(At base, int64_t dim, At index, At updates) {
  const PlaceScope place(base);
  check_same_graph("scatter_add", base.value, index.value);
  const Operands same = same_dtype("scatter_add", base.value, updates.value);
  return base.value.builder->emit_one(ScatterAdd{dim_of("scatter_add", base.value, dim)}, {same.a, index.value, same.b});
}

}  // namespace stepgraph
