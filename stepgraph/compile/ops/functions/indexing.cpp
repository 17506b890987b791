// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/indexing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/statistics.h"

namespace stepgraph {

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
// ---- writes by index

Value scatter(At base, int64_t dim, At index, At updates) {
  const PlaceScope place(base);
  const Value b = base.value;
  const int64_t d = dim_of("scatter", b, dim);
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
