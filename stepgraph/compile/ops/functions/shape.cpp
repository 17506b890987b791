// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/shape.h"

#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/indexing.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/rows/checks.h"

namespace stepgraph {

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

Value roll(At x, int64_t dim, const Dim& shift) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t d = dim_of("roll", v, dim);
  const Dim size = v.dim(d);
  if (size == Dim(0)) return v;
  const SymbolTable& symbols = v.builder->module().symbols;
  // The remainder by a size of 0 has no value; then nothing is rolled either.
  const bool may_be_empty = symbols.less_or_equal(1, size) != Truth::True;
  const Dim first = symbols.simplify(mod(Dim(0) - shift, may_be_empty ? max(size, Dim(1)) : size));  // the element that comes first
  if (first == Dim(0)) return v;
  const std::vector<Value> parts{slice(v, d, first, size), slice(v, d, 0, first)};
  return concatenate(parts, d);
}

Value triangle(At x, int64_t diagonal, bool lower) {
  const PlaceScope place(x);
  const Value v = x.value;
  if (v.rank() < 2) throw UserError("tril, triu: found " + text(v.type()) + ", wanted at least 2 dims", v.builder->place());
  const Shape matrix{v.dim(-2), v.dim(-1)};
  const Value row = iota(*v.builder, DType::I64, matrix, 0), column = iota(*v.builder, DType::I64, matrix, 1);
  const Value distance = column - row;
  const Value kept = lower ? less_equal(distance, static_cast<double>(diagonal)) : greater_equal(distance, static_cast<double>(diagonal));
  return where(broadcast_to(kept, v.shape()), v, zeros_like(v));
}

Value broadcast_pair(At x, const Shape& other) {
  const PlaceScope place(x);
  const Value v = x.value;
  const size_t rank = std::max(v.shape().size(), other.size());
  Shape shape(rank, Dim(1));
  for (size_t d = 0; d < rank; ++d) {
    const Dim a = d < rank - v.shape().size() ? Dim(1) : v.shape()[d - (rank - v.shape().size())];
    const Dim b = d < rank - other.size() ? Dim(1) : other[d - (rank - other.size())];
    shape[d] = a == Dim(1) ? b : a;
    if (!(a == Dim(1)) && !(b == Dim(1)) && v.builder->module().symbols.equal(a, b) == Truth::False)
      throw UserError("broadcast: sizes differ, " + text(v.shape()) + " and " + text(other), v.builder->place());
  }
  return broadcast_to(v, shape);
}

namespace {
/// Of each element of a padded dim, the element that it repeats; sizes may be symbolic.
Value padded_positions(const Value& v, int64_t d, const Dim& low, const Dim& high, const std::string& mode) {
  Builder& builder = *v.builder;
  const Dim size = v.dim(d), most = mode == "reflect" ? size - 1 : size;
  const SymbolTable& symbols = builder.module().symbols;
  if (mode != "replicate" && (symbols.less_or_equal(low, most) == Truth::False || symbols.less_or_equal(high, most) == Truth::False))
    throw UserError("pad: mode " + mode + " with more than dim " + std::to_string(d) + " of " + text(v.type()) + " has", builder.place());
  const Value at = iota(builder, DType::I64, {low + size + high}, 0) - size_value(builder, DType::I64, low);
  const Value last = broadcast_to(size_value(builder, DType::I64, size - 1), at.shape());
  if (mode == "reflect") return last - abs(last - abs(at));
  if (mode == "replicate") return minimum(maximum(at, zeros_like(at)), last);
  if (mode == "circular") return remainder(at, last + 1.0);
  throw UserError("pad: found mode '" + mode + "', wanted constant, reflect, replicate or circular", builder.place());
}
}  // namespace

Value pad_mode(At x, const Shape& low, const Shape& high, const std::string& mode, double value) {
  const PlaceScope place(x);
  Value v = x.value;
  Shape below = low, above = high;
  for (int64_t d = 0; d < v.rank(); ++d) {  // negative amounts cut off
    Dim &b = below[static_cast<size_t>(d)], &a = above[static_cast<size_t>(d)];
    const bool cut_low = b.is_constant() && b.constant() < 0, cut_high = a.is_constant() && a.constant() < 0;
    if (!cut_low && !cut_high) continue;
    v = slice(v, d, cut_low ? Dim(0) - b : Dim(0), cut_high ? v.dim(d) + a : v.dim(d));
    if (cut_low) b = 0;
    if (cut_high) a = 0;
  }
  if (mode == "constant") return pad(v, below, above, value);
  for (int64_t d = 0; d < v.rank(); ++d) {
    const Dim b = below[static_cast<size_t>(d)], a = above[static_cast<size_t>(d)];
    if (b == Dim(0) && a == Dim(0)) continue;
    if (!b.is_constant() || !a.is_constant() || !v.dim(d).is_constant()) {
      v = index_select(v, d, padded_positions(v, d, b, a, mode));
      continue;
    }
    const int64_t size = v.dim(d).constant();
    const int64_t most = mode == "reflect" ? size - 1 : mode == "circular" ? size : INT64_MAX;
    if (b.constant() > most || a.constant() > most || size == 0) throw UserError("pad: mode " + mode + " with more than dim " + std::to_string(d) + " of " + text(v.type()) + " has", v.builder->place());
    std::vector<int64_t> from;
    for (int64_t i = -b.constant(); i < size + a.constant(); ++i) {
      int64_t place_of_element = i;
      if (mode == "reflect") place_of_element = i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
      else if (mode == "replicate") place_of_element = std::clamp<int64_t>(i, 0, size - 1);
      else if (mode == "circular") place_of_element = (i + size) % size;
      else throw UserError("pad: found mode '" + mode + "', wanted constant, reflect, replicate or circular", v.builder->place());
      from.push_back(place_of_element);
    }
    v = index_select(v, d, constant(*v.builder, Literal::from_integers(DType::I64, {static_cast<int64_t>(from.size())}, from)));
  }
  return v;
}

Value pixel_shuffle(At x, int64_t factor) {
  const PlaceScope place(x);
  const Value v = x.value;
  if (v.rank() < 3 || factor < 1) throw UserError("pixel_shuffle: found " + text(v.type()) + " and factor " + std::to_string(factor), v.builder->place());
  const Dim r(factor), h = v.dim(-2), w = v.dim(-1);
  const auto channels = exact_quotient(v.dim(-3), r * r);
  if (!channels) throw UserError("pixel_shuffle: " + v.dim(-3).text() + " channels are not a multiple of " + (r * r).text(), v.builder->place());
  Shape lead(v.shape().begin(), v.shape().end() - 3), apart = lead, merged = lead;
  apart.insert(apart.end(), {*channels, r, r, h, w});
  merged.insert(merged.end(), {*channels, h * r, w * r});
  Dims permutation;
  const int64_t n = static_cast<int64_t>(lead.size());
  for (int64_t d = 0; d < n; ++d) permutation.push_back(d);
  for (int64_t d : {0, 3, 1, 4, 2}) permutation.push_back(n + d);
  return reshape(permute(reshape(v, apart), permutation), merged);
}

Value pixel_unshuffle(At x, int64_t factor) {
  const PlaceScope place(x);
  const Value v = x.value;
  if (v.rank() < 3 || factor < 1) throw UserError("pixel_unshuffle: found " + text(v.type()) + " and factor " + std::to_string(factor), v.builder->place());
  const Dim r(factor);
  const auto h = exact_quotient(v.dim(-2), r), w = exact_quotient(v.dim(-1), r);
  if (!h || !w) throw UserError("pixel_unshuffle: " + text(v.type()) + " is not a multiple of " + r.text(), v.builder->place());
  Shape lead(v.shape().begin(), v.shape().end() - 3), apart = lead, merged = lead;
  apart.insert(apart.end(), {v.dim(-3), *h, r, *w, r});
  merged.insert(merged.end(), {v.dim(-3) * r * r, *h, *w});
  Dims permutation;
  const int64_t n = static_cast<int64_t>(lead.size());
  for (int64_t d = 0; d < n; ++d) permutation.push_back(d);
  for (int64_t d : {0, 2, 4, 1, 3}) permutation.push_back(n + d);
  return reshape(permute(reshape(v, apart), permutation), merged);
}

}  // namespace stepgraph
