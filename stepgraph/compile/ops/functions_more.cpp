// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions_more.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "stepgraph/compile/ops/functions_place.h"

namespace stepgraph {
namespace {

int64_t wrapped(const Value& x, int64_t dim) {
  const int64_t rank = x.rank();
  if (dim < -rank || dim >= rank) throw UserError("dim " + std::to_string(dim) + " is out of range for " + text(x.type()), x.builder->place());
  return dim < 0 ? dim + rank : dim;
}

}  // namespace

// ---- element-wise

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

// ---- reductions

Value vector_norm(At x, double p, Dims dims, bool keep_dims) {
  const PlaceScope place(x);
  const Value v = autocast("linalg_vector_norm", x.value);
  const AutocastScope off(*v.builder, {});
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

// ---- order

Sorted sort(At x, int64_t dim, bool descending) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t d = wrapped(v, dim);
  const Value indices = v.builder->emit_one(ArgSort{d, descending}, {v});
  return {gather(v, d, indices), indices};
}

Sorted topk(At x, int64_t k, int64_t dim, bool largest) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t d = wrapped(v, dim);
  if (k < 0 || (v.dim(d).is_constant() && k > v.dim(d).constant()))
    throw UserError("topk: found k = " + std::to_string(k) + ", dim " + std::to_string(d) + " of " + text(v.type()) + " has fewer elements", v.builder->place());
  const Value order = v.builder->emit_one(ArgSort{d, largest}, {v});
  const Value indices = slice(order, d, 0, Dim(k));
  return {gather(v, d, indices), indices};
}

// ---- writes by index

Value scatter(At base, int64_t dim, At index, At updates) {
  const PlaceScope place(base);
  const Value b = base.value;
  const int64_t d = wrapped(b, dim);
  if (updates->shape()[static_cast<size_t>(d)] == Dim(0)) return b;
  const Value position = b.builder->emit_one(ScatterPosition{d, b.dim(d)}, {index.value});
  const Value written = greater_equal(position, 0.0);
  const Value found = gather(updates.value, d, where(written, position, zeros_like(position)));
  return where(written, found, b);
}

namespace {

/// Advanced indexing laid out: x with its indexed dims in front and merged, the linear index, and where the result's index dims go.
struct Indexing {
  Value merged;         ///< [product of indexed sizes, other dims]
  Value linear;         ///< index shape, i64
  Shape index_shape;
  Dims order;           ///< permutation of x that puts the indexed dims first
  int64_t indexed = 0;  ///< number of indexed dims
  int64_t place = 0;    ///< dim of the result where the index dims stand
};

Indexing lay_out(const Value& x, const std::vector<std::optional<Value>>& given) {
  Builder& builder = *x.builder;
  if (given.size() > static_cast<size_t>(x.rank())) throw UserError("index: found " + std::to_string(given.size()) + " indices for " + text(x.type()), builder.place());
  Dims with, without;
  std::vector<Value> indices;
  Shape shape;
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (static_cast<size_t>(d) >= given.size() || !given[static_cast<size_t>(d)]) {
      without.push_back(d);
      continue;
    }
    with.push_back(d);
    Value index = *given[static_cast<size_t>(d)];
    if (index.dtype() == DType::Bool) throw UserError("index: a bool mask gives a size that depends on data; use where", builder.place());
    if (!is_integer(index.dtype())) throw UserError("index: found an index " + text(index.type()) + ", wanted integers", builder.place());
    index = convert(index, DType::I64);
    indices.push_back(where(less(index, 0.0), index + size_value(builder, DType::I64, x.dim(d)), index));
    shape = broadcast_pair(indices.back(), shape).shape();
  }
  if (indices.empty()) throw UserError("index: no index is given", builder.place());
  Indexing laid;
  laid.indexed = static_cast<int64_t>(with.size());
  const bool adjacent = with.back() - with.front() + 1 == laid.indexed;
  laid.place = adjacent ? with.front() : 0;
  laid.order = with;
  laid.order.insert(laid.order.end(), without.begin(), without.end());
  Value linear = broadcast_to(indices[0], shape);
  Dim size = x.dim(with[0]);
  for (size_t i = 1; i < with.size(); ++i) {
    linear = linear * size_value(builder, DType::I64, x.dim(with[i])) + broadcast_to(indices[i], shape);
    size = size * x.dim(with[i]);
  }
  laid.linear = linear;
  laid.index_shape = shape;
  Shape merged{size};
  for (int64_t d : without) merged.push_back(x.dim(d));
  laid.merged = reshape(permute(x, laid.order), merged);
  return laid;
}

/// Index dims from the front to their place, or (inverse) back.
Value move_index_dims(const Value& x, const Indexing& laid, bool to_front) {
  const int64_t count = static_cast<int64_t>(laid.index_shape.size());
  if (laid.place == 0) return x;
  Dims permutation;
  if (to_front) {
    for (int64_t d = 0; d < count; ++d) permutation.push_back(laid.place + d);
    for (int64_t d = 0; d < x.rank(); ++d)
      if (d < laid.place || d >= laid.place + count) permutation.push_back(d);
  } else {
    for (int64_t d = 0; d < laid.place; ++d) permutation.push_back(count + d);
    for (int64_t d = 0; d < count; ++d) permutation.push_back(d);
    for (int64_t d = count + laid.place; d < x.rank(); ++d) permutation.push_back(d);
  }
  return permute(x, permutation);
}

}  // namespace

Value index(At x, const std::vector<std::optional<Value>>& indices) {
  const PlaceScope place(x);
  const Indexing laid = lay_out(x.value, indices);
  return move_index_dims(index_select(laid.merged, 0, laid.linear), laid, false);
}

namespace {

/// The n-th place where the mask holds takes the n-th of `values`.
Value put_where(const Value& x, const Value& mask, const Value& values, bool accumulate) {
  const Dim places = element_count(mask.shape());
  const Shape row(x.shape().begin() + mask.rank(), x.shape().end());
  Shape lines{places}, given{values.rank() > static_cast<int64_t>(row.size()) ? values.dim(0) : Dim(1)};
  lines.insert(lines.end(), row.begin(), row.end());
  given.insert(given.end(), row.begin(), row.end());
  const Value flat_mask = reshape(mask, {places}), rank = cumsum(convert(flat_mask, DType::I64), 0) - 1.0;
  const Value found = index_select(broadcast_to(values, given), 0, given[0] == Dim(1) ? zeros_like(rank) : where(flat_mask, rank, zeros_like(rank)));
  const Value base = reshape(x, lines);
  Value wide = flat_mask;
  while (wide.rank() < base.rank()) wide = unsqueeze(wide, wide.rank());
  return reshape(where(broadcast_to(wide, base.shape()), accumulate ? base + found : found, base), x.shape());
}

}  // namespace

Value index_put(At base, const std::vector<std::optional<Value>>& indices, At values, bool accumulate) {
  const PlaceScope place(base);
  const Value x = base.value;
  // A single bool mask: no size depends on it.
  if (indices.size() == 1 && indices[0] && indices[0]->dtype() == DType::Bool) {
    Value mask = *indices[0];
    if (values->rank() != 0 && !(element_count(values->shape()) == Dim(1))) return put_where(x, mask, values.value, accumulate);
    for (int64_t d = mask.rank(); d < x.rank(); ++d) mask = unsqueeze(mask, d);
    const Value update = broadcast_to(reshape(values.value, {}), x.shape());
    return where(broadcast_to(mask, x.shape()), accumulate ? x + update : update, x);
  }
  const Indexing laid = lay_out(x, indices);
  Shape wanted = laid.index_shape;
  for (int64_t d = 1; d < laid.merged.rank(); ++d) wanted.push_back(laid.merged.dim(d));
  // The values broadcast to the shape that reading would give, index dims at their place.
  const Value read_shape = move_index_dims(full(*x.builder, DType::Bool, wanted, 0), laid, false);
  const Value updates = move_index_dims(broadcast_to(values.value, read_shape.shape()), laid, true);
  Shape flat{element_count(laid.index_shape)};
  for (int64_t d = 1; d < laid.merged.rank(); ++d) flat.push_back(laid.merged.dim(d));
  const Value lines = reshape(updates, flat), linear = reshape(laid.linear, {flat[0]});
  Value changed;
  if (accumulate) {
    changed = index_add(laid.merged, 0, linear, lines);
  } else {
    Shape column(flat.size(), Dim(1));
    column[0] = flat[0];
    changed = scatter(laid.merged, 0, broadcast_to(reshape(linear, column), flat), lines);
  }
  Shape unmerged;
  for (int64_t d : laid.order) unmerged.push_back(x.dim(d));
  Dims inverse(laid.order.size());
  for (size_t d = 0; d < inverse.size(); ++d) inverse[static_cast<size_t>(laid.order[d])] = static_cast<int64_t>(d);
  return permute(reshape(changed, unmerged), inverse);
}

// ---- movement

Value roll(At x, int64_t dim, int64_t shift) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t d = wrapped(v, dim);
  const Dim size = v.dim(d);
  if (!size.is_constant()) throw UserError("roll: dim " + std::to_string(d) + " of " + text(v.type()) + " is symbolic, wanted a constant size", v.builder->place());
  if (size.constant() == 0) return v;
  const int64_t by = ((shift % size.constant()) + size.constant()) % size.constant();
  if (by == 0) return v;
  const std::vector<Value> parts{slice(v, d, size - by, size), slice(v, d, 0, size - by)};
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
    if (!b.is_constant() || !a.is_constant() || !v.dim(d).is_constant())
      throw UserError("pad: mode " + mode + " wants constant sizes, found " + text(v.type()), v.builder->place());
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

// ---- embeddings

namespace {

/// rows [n, width], the bag of each, and whether it counts: of each bag the first largest row in each column; 0 of bags without rows.
Value largest_of_bags(const Value& rows, const Value& bag, const Value& counted, const Dim& bags) {
  Builder& builder = *rows.builder;
  const Dim n = rows.dim(0), width = rows.dim(1);
  const Value is_of = logical_and(equal(reshape(bag, {Dim(1), n}), iota(builder, DType::I64, {bags, n}, 0)), reshape(counted, {Dim(1), n}));
  const Shape shape{bags, n, width};
  const Value candidates = broadcast_to(unsqueeze(rows, 0), shape);
  const Value masked = where(broadcast_to(unsqueeze(is_of, 2), shape), candidates, full_like(candidates, -INFINITY));
  const Value largest = squeeze(gather(masked, 1, argmax(masked, 1, true)), {1});
  const Value is_filled = broadcast_to(reduce(ReduceKind::Any, is_of, {1}, true), largest.shape());
  return where(is_filled, largest, zeros_like(largest));
}

}  // namespace

Value embedding_bag(At weight, At indices, std::optional<Value> offsets, BagKind kind, std::optional<Value> per_sample_weights, bool include_last_offset,
                    std::optional<int64_t> padding_index) {
  const PlaceScope place(weight);
  Builder& builder = *weight->builder;
  const Value rows_weight = weight.value;
  if (indices->rank() == 2) {
    const Value rows = index_select(rows_weight, 0, indices.value);  // [bags, length, width]
    Value counted = padding_index ? not_equal(indices.value, static_cast<double>(*padding_index)) : full(builder, DType::Bool, indices->shape(), 1);
    const Value mask = broadcast_to(unsqueeze(counted, 2), rows.shape());
    if (kind == BagKind::Max) return amax(where(mask, rows, full_like(rows, -INFINITY)), {1});
    Value kept = where(mask, rows, zeros_like(rows));
    if (per_sample_weights) kept = kept * unsqueeze(*per_sample_weights, 2);
    const Value total = sum(kept, {1});
    if (kind == BagKind::Sum) return total;
    const Value count = convert(sum(convert(counted, DType::I64), {1}, true), rows.dtype());
    return total / maximum(count, ones_like(count));
  }
  if (!offsets) throw UserError("embedding_bag: 1-d indices want offsets", builder.place());
  const Dim n = indices->dim(0);
  Dim bags = offsets->dim(0);
  Value starts = convert(*offsets, DType::I64);
  if (include_last_offset) bags = bags - 1, starts = slice(starts, 0, 0, bags);
  // The bag of element i: the number of bags that start at or before it, less one.
  const Value position = reshape(iota(builder, DType::I64, {n}, 0), {n, Dim(1)});
  const Value started = convert(less_equal(reshape(starts, {Dim(1), bags}), position), DType::I64);
  const Value bag = sum(started, {1}) - 1.0;
  Value rows = index_select(rows_weight, 0, indices.value);
  const Value counted = padding_index ? not_equal(indices.value, static_cast<double>(*padding_index)) : full(builder, DType::Bool, {n}, 1);
  if (kind == BagKind::Max) return largest_of_bags(rows, bag, counted, bags);
  if (per_sample_weights) rows = rows * unsqueeze(*per_sample_weights, 1);
  rows = where(broadcast_to(unsqueeze(counted, 1), rows.shape()), rows, zeros_like(rows));
  const Value total = index_add(full(builder, rows.dtype(), {bags, rows.dim(1)}, 0), 0, bag, rows);
  if (kind == BagKind::Sum) return total;
  const Value count = index_add(full(builder, rows.dtype(), {bags}, 0), 0, bag, convert(counted, rows.dtype()));
  return total / unsqueeze(maximum(count, ones_like(count)), 1);
}

}  // namespace stepgraph
