// SPDX-License-Identifier: Apache-2.0
// Reads and writes by index beyond the everyday ones: scatters that reduce, copies and fills along a dim, flat positions, masks.
#include <limits>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

Value with_a_dim(const Value& x) { return x.rank() == 0 ? reshape(x, {Dim(1)}) : x; }
Value flattened_whole(const Value& x) { return reshape(x, {element_count(x.shape())}); }
/// Positions that count from the end made to count from the start.
Value from_start(OperatorCall& call, const Value& index, const Dim& size) {
  return where(less(index, 0.0), index + size_value(call.builder(), index.dtype(), size), index);
}
/// A 1-d index along `dim`, repeated over the other dims of `updates`.
Value along(const Value& index, int64_t dim, const Value& updates) {
  Shape alone(static_cast<size_t>(updates.rank()), Dim(1));
  alone[static_cast<size_t>(dim)] = index.dim(0);
  return broadcast_to(reshape(index, alone), updates.shape());
}

/// base, index and updates of one scatter: index may cover less of base and of updates than they have.
struct Scatter {
  Value base, index, updates;
  int64_t dim;
};
/// What a place starts from when its own value does not count.
double neutral(OperatorCall& call, const std::string& reduce, DType dtype) {
  const bool floating = is_floating(dtype);
  if (reduce == "sum" || reduce == "mean") return 0;
  if (reduce == "prod") return 1;
  if (!floating && dtype != DType::I64 && dtype != DType::I32) call.fail("reduce '" + reduce + "' of " + std::string(name(dtype)) + " is not supported");
  const double infinity = std::numeric_limits<double>::infinity();
  const double least = dtype == DType::I32 ? -0x1p31 : -0x1p63, most = dtype == DType::I32 ? 0x1p31 - 1 : 0x1p62;
  if (reduce == "amax") return floating ? -infinity : least;
  return floating ? infinity : most;
}
/// The largest or smallest of the updates alone. Among equal ones PyTorch shares the gradient with the element of the base, which then gets nothing of it.
Value extreme_without_base(const Scatter& s, ScatterReduceKind kind, double neutral_value) {
  const int64_t dim = s.dim;
  const auto untouched = [dim](const Value& base, const Value& index) {
    const auto count = [&](const Shape& shape, double value) { return full(*base.builder, DType::I64, shape, value); };
    return equal(scatter_add(count(base.shape(), 0), dim, index, count(index.shape(), 1)), 0.0);
  };
  const CompositeBody body = [=](Builder&, const std::vector<Value>& in) {
    const Value start = where(untouched(in[0], in[1]), in[0], full_like(in[0], neutral_value));
    return std::vector<Value>{in[0].builder->emit_one(ScatterReduce{kind, dim}, {start, in[1], in[2]})};
  };
  const CompositeBody gradient = [=](Builder&, const std::vector<Value>& in) {
    const Value &base = in[0], &index = in[1], &updates = in[2], &result = in[3], &g = in[4];
    const auto takes = [](const Value& x, const Value& extreme) { return logical_or(equal(x, extreme), not_equal(x, x)); };
    const Value taken = takes(updates, gather(result, dim, index));
    const Value share = g / scatter_add(convert(takes(base, result), g.dtype()), dim, index, convert(taken, g.dtype()));
    const Value shares = gather(share, dim, index);
    return std::vector<Value>{where(untouched(base, index), g, zeros_like(g)), zeros_like(index), where(taken, shares, zeros_like(shares))};
  };
  return composite(*s.base.builder, "scatter_extreme", std::vector<Value>{s.base, s.index, s.updates}, body, gradient)[0];
}
Value reduced(OperatorCall& call, const Scatter& s, const std::string& reduce, bool include_self) {
  const auto emit = [&](ScatterReduceKind kind, const Value& base) { return s.base.builder->emit_one(ScatterReduce{kind, s.dim}, {base, s.index, s.updates}); };
  const Value counts =
      scatter_add(full(call.builder(), DType::I64, s.base.shape(), include_self ? 1 : 0), s.dim, s.index, full(call.builder(), DType::I64, s.index.shape(), 1));
  const Value untouched = equal(counts, include_self ? 1.0 : 0.0);
  const Value start = include_self ? s.base : where(untouched, s.base, full_like(s.base, neutral(call, reduce, s.base.dtype())));
  if (reduce == "sum" || reduce == "add") return scatter_add(start, s.dim, s.index, s.updates);
  if (reduce == "mean") {
    const Value total = scatter_add(start, s.dim, s.index, s.updates), number = maximum(counts, ones_like(counts));
    return is_floating(total.dtype()) ? total / convert(number, total.dtype()) : floor_divide(total, convert(number, total.dtype()));
  }
  if (reduce == "prod" || reduce == "multiply") return emit(ScatterReduceKind::Product, start);
  if (reduce != "amax" && reduce != "amin") call.fail("reduce '" + reduce + "' is unknown");
  const ScatterReduceKind kind = reduce == "amax" ? ScatterReduceKind::Max : ScatterReduceKind::Min;
  return include_self || !is_floating(s.base.dtype()) ? emit(kind, start) : extreme_without_base(s, kind, neutral(call, reduce, s.base.dtype()));
}
/// The part of x that the index covers in all dims but `dim` (-1: in all).
Value covered_by(const Value& x, const Value& index, int64_t dim) {
  Value cut = x;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim && !(cut.dim(d) == index.dim(d))) cut = slice(cut, d, 0, index.dim(d));
  return cut;
}
void scatter_reduce_row(OperatorCall& call) {
  const Value given = call.tensor("self"), x = with_a_dim(given), index = with_a_dim(call.tensor("index"));
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const Value updates = covered_by(convert(with_a_dim(call.tensor("src")), x.dtype()), index, -1);
  const Value part = covered_by(x, index, dim);
  Value result = reduced(call, {part, index, updates, dim}, call.text("reduce"), call.boolean("include_self", true));
  if (!(part.shape() == x.shape())) {  // the rest of x stays as it is
    Shape low(static_cast<size_t>(x.rank()), Dim(0)), high = low;
    for (int64_t d = 0; d < x.rank(); ++d) high[static_cast<size_t>(d)] = x.dim(d) - part.dim(d);
    const Value inside = convert(pad(full(call.builder(), DType::I64, part.shape(), 1), low, high), DType::Bool);
    result = where(inside, pad(result, low, high), x);
  }
  call.result(reshape(result, given.shape()));
}
void index_reduce_row(OperatorCall& call) {
  const Value given = call.tensor("self"), x = with_a_dim(given), source = with_a_dim(convert(call.tensor("source"), x.dtype()));
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const Value found =
      reduced(call, {x, along(with_a_dim(call.tensor("index")), dim, source), source, dim}, call.text("reduce"), call.boolean("include_self", true));
  call.result(reshape(found, given.shape()));
}
void index_copy_row(OperatorCall& call) {
  const Value given = call.tensor("self"), x = with_a_dim(given), source = with_a_dim(convert(call.tensor("source"), x.dtype()));
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  call.result(reshape(scatter(x, dim, along(with_a_dim(call.tensor("index")), dim, source), source), given.shape()));
}
void index_fill_row(OperatorCall& call) {
  const Value given = call.tensor("self"), x = with_a_dim(given);
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const Value index = from_start(call, with_a_dim(call.tensor("index")), x.dim(dim));
  Shape shape = x.shape();
  shape[static_cast<size_t>(dim)] = index.dim(0);
  const Value filled = broadcast_to(reshape(as_value(call.builder(), call.operand("value"), x.dtype()), {}), shape);
  call.result(reshape(scatter(x, dim, along(index, dim, filled), filled), given.shape()));
}
/// Positions in x as if it were flat.
void put_row(OperatorCall& call) {
  const Value x = call.tensor("self"), line = flattened_whole(x);
  const Value index = from_start(call, flattened_whole(call.tensor("index")), line.dim(0)), source = flattened_whole(convert(call.tensor("source"), x.dtype()));
  call.result(reshape(call.boolean("accumulate", false) ? scatter_add(line, 0, index, source) : scatter(line, 0, index, source), x.shape()));
}
/// The n-th true element of the mask takes the n-th element of the source.
void masked_scatter_row(OperatorCall& call) {
  const Value x = call.tensor("self"), given = call.tensor("mask");
  const Value mask = flattened_whole(broadcast_pair(given, x.shape())), source = flattened_whole(convert(call.tensor("source"), x.dtype()));
  const Value line = flattened_whole(broadcast_pair(x, given.shape()));
  const Value rank = cumsum(convert(mask, DType::I64), 0) - 1.0;
  const Value found = gather(source, 0, where(mask, rank, zeros_like(rank)));
  call.result(reshape(where(mask, found, line), broadcast_pair(x, given.shape()).shape()));
}
void embedding_renorm_row(OperatorCall& call) {
  call.fail("max_norm of an embedding changes the weights in the forward pass, which is not supported: bound them in the optimizer or by weight decay");
}
/// The elements at the indices where the mask holds, `fill` elsewhere.
void masked_index_row(OperatorCall& call) {
  const Value x = call.tensor("self"), mask = call.tensor("mask");
  std::vector<std::optional<Value>> indices = call.optional_tensors("indices");
  for (auto& index : indices)
    if (index) index = where(broadcast_pair(mask, index->shape()), broadcast_pair(*index, mask.shape()), zeros_like(broadcast_pair(*index, mask.shape())));
  const Value found = index(x, indices);
  Value wide = mask;
  while (wide.rank() < found.rank()) wide = unsqueeze(wide, wide.rank());
  call.result(where(broadcast_to(wide, found.shape()), found, broadcast_to(as_value(call.builder(), call.operand("fill"), x.dtype()), found.shape())));
}

}  // namespace

std::vector<NamedRow> scatter_rows() {
  return {
      {"scatter_reduce", scatter_reduce_row},
      {"index_reduce", index_reduce_row},
      {"index_copy", index_copy_row},
      {"index_fill", index_fill_row},
      {"put", put_row},
      {"masked_scatter", masked_scatter_row},
      {"embedding_renorm_", embedding_renorm_row},
      {"_unsafe_masked_index", masked_index_row},
  };
}

}  // namespace stepgraph::pt2
