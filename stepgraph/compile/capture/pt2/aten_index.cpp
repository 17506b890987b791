// SPDX-License-Identifier: Apache-2.0
// Reading and writing by index, order, embeddings.
#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/composite/linear.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// Negative indices count from the end, as in PyTorch's advanced indexing.
Value at_least_1d(const Value& x) { return x.rank() == 0 ? reshape(x, {Dim(1)}) : x; }

void index_row(OperatorCall& call) { call.result(index(call.tensor("self"), call.optional_tensors("indices"))); }
void index_put_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(index_put(x, call.optional_tensors("indices"), convert(call.tensor("values"), x.dtype()), call.boolean("accumulate", false)));
}
void index_select_row(OperatorCall& call) {
  const Value x = call.tensor("self"), indices = at_least_1d(call.tensor("index"));
  if (x.rank() == 0) return call.result(reshape(index_select(reshape(x, {Dim(1)}), 0, indices), {}));
  call.result(index_select(x, call.wrap(call.integer("dim"), x.rank()), indices));
}
/// torch.gather and scatter let `index` be smaller than the tensor: what it does not cover is cut off first.
Value covered(const Value& x, const Value& like, int64_t dim) {
  Value cut = x;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim && !(cut.dim(d) == like.dim(d))) cut = slice(cut, d, 0, like.dim(d));
  return cut;
}
void gather_row(OperatorCall& call) {
  const Value x = at_least_1d(call.tensor("self"));
  const Value given = call.tensor("index"), wanted = at_least_1d(given);
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const Value found = gather(covered(x, wanted, dim), dim, wanted);
  call.result(given.rank() == 0 ? reshape(found, {}) : found);
}
/// What a scatter writes: `src` (cut to the index), or a number.
Value updates_of(OperatorCall& call, const Value& x, const Value& wanted) {
  if (call.has("src")) return covered(convert(at_least_1d(call.tensor("src")), x.dtype()), wanted, -1);
  return broadcast_to(as_value(call.builder(), call.operand("value"), x.dtype()), wanted.shape());
}
/// A scatter into the covered part, put back into the whole.
Value into_whole(const Value& x, const Value& wanted, int64_t dim, const std::function<Value(const Value&)>& change) {
  Value part = covered(x, wanted, dim);
  part = change(part);
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (part.dim(d) == x.dim(d)) continue;
    Value rest = x;
    for (int64_t later = d + 1; later < x.rank(); ++later)
      if (!(part.dim(later) == x.dim(later))) rest = slice(rest, later, 0, part.dim(later));
    const std::vector<Value> joined{part, slice(rest, d, part.dim(d), x.dim(d))};
    part = concatenate(joined, d);
  }
  return part;
}
void scatter_row(OperatorCall& call) {
  const Value given = call.tensor("self"), x = at_least_1d(given), wanted = at_least_1d(call.tensor("index"));
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const std::string reduction = call.text("reduce");
  if (!reduction.empty() && reduction != "add" && reduction != "multiply") call.fail("scatter with reduce '" + reduction + "' is not supported");
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim && !(x.dim(d) == wanted.dim(d)) && (!x.dim(d).is_constant() || !wanted.dim(d).is_constant())) call.fail("index covers only a part of a symbolic size");
  const Value updates = updates_of(call, x, wanted);
  const Value result = into_whole(x, wanted, dim, [&](const Value& part) {
    if (reduction == "multiply") return part.builder->emit_one(ScatterReduce{ScatterReduceKind::Product, dim}, {part, wanted, updates});
    return reduction.empty() ? scatter(part, dim, wanted, updates) : scatter_add(part, dim, wanted, updates);
  });
  call.result(reshape(result, given.shape()));
}
void scatter_add_row(OperatorCall& call) {
  const Value given = call.tensor("self"), x = at_least_1d(given), wanted = at_least_1d(call.tensor("index"));
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const Value updates = updates_of(call, x, wanted);
  call.result(reshape(into_whole(x, wanted, dim, [&](const Value& part) { return scatter_add(part, dim, wanted, updates); }), given.shape()));
}
void index_add_row(OperatorCall& call) {
  const Value given = call.tensor("self"), x = at_least_1d(given);
  Value source = at_least_1d(convert(call.tensor("source"), x.dtype()));
  if (call.real("alpha", 1) != 1) source = source * call.real("alpha");
  call.result(reshape(index_add(x, call.wrap(call.integer("dim"), x.rank()), at_least_1d(call.tensor("index")), source), given.shape()));
}
void topk_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.results({x, constant(call.builder(), Literal::integer(DType::I64, 0))});
  const int64_t k = call.integer("k"), dim = call.wrap(call.integer("dim", -1), x.rank());
  const bool largest = call.boolean("largest", true);
  const Sorted found = call.boolean("sorted", true) ? topk(x, k, dim, largest) : pick(x, largest ? PickKind::AnyLargest : PickKind::AnySmallest, k, dim);
  call.results({found.values, found.indices});
}
void sort_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.results({x, constant(call.builder(), Literal::integer(DType::I64, 0))});
  const Sorted found = sort(x, call.wrap(call.integer("dim", -1), x.rank()), call.boolean("descending", false));
  call.results({found.values, found.indices});
}
void argsort_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.result(constant(call.builder(), Literal::integer(DType::I64, 0)));
  call.result(sort(x, call.wrap(call.integer("dim", -1), x.rank()), call.boolean("descending", false)).indices);
}
/// The same values, with the gradient of each divided by how often its index is taken.
Value divided_by_frequency(const Value& rows, const Value& indices, const Dim& count) {
  Builder& builder = *rows.builder;
  const Value taken = index_add(full(builder, rows.dtype(), {count}, 0), 0, indices, full(builder, rows.dtype(), indices.shape(), 1));
  const Value often = broadcast_to(unsqueeze(index_select(taken, 0, indices), -1), rows.shape());
  const CompositeBody same = [](Builder&, const std::vector<Value>& in) { return std::vector<Value>{in[0]}; };
  const CompositeBody gradient = [](Builder&, const std::vector<Value>& in) { return std::vector<Value>{in[3] / in[1], zeros_like(in[1])}; };
  return composite(builder, "divided_by_frequency", std::vector<Value>{rows, often}, same, gradient)[0];
}
void embedding_row(OperatorCall& call) {
  Value weight = call.tensor("weight");
  const Value indices = call.tensor("indices");
  const int64_t padding = call.integer("padding_idx", -1);
  const Value found = embedding(indices, weight),
              rows = call.boolean("scale_grad_by_freq", false) ? divided_by_frequency(found, indices, weight.dim(0)) : found;
  if (padding < 0) return call.result(rows);
  // The row of the padding index gets no gradient.
  const Value is_padding = broadcast_to(unsqueeze(equal(indices, static_cast<double>(padding)), -1), rows.shape());
  call.result(where(is_padding, stop_gradient(rows), rows));
}
void embedding_bag_row(OperatorCall& call) {
  const int64_t mode = call.integer("mode", 0);
  const std::optional<int64_t> padding = call.has("padding_idx") && call.integer("padding_idx") >= 0 ? std::optional<int64_t>(call.integer("padding_idx")) : std::nullopt;
  if (call.boolean("scale_grad_by_freq", false)) call.fail("scale_grad_by_freq is not supported");
  const Value indices = call.tensor("indices"), offsets = call.tensor("offsets");
  const Value bags = embedding_bag(call.tensor("weight"), indices, offsets, mode == 0 ? BagKind::Sum : mode == 1 ? BagKind::Mean : BagKind::Max,
                                   call.maybe_tensor("per_sample_weights"), call.boolean("include_last_offset", false), padding);
  // The other three results serve PyTorch's own backward.
  const Value empty = full(call.builder(), DType::I64, {Dim(0)}, 0);
  call.results({bags, empty, empty, empty});
}
void masked_select_row(OperatorCall& call) { call.fail("the size of the result depends on data"); }

}  // namespace

std::vector<NamedRow> index_rows() {
  return {
      {"index", index_row}, {"_unsafe_index", index_row}, {"index_put", index_put_row}, {"_unsafe_index_put", index_put_row}, {"index_select", index_select_row},
      {"gather", gather_row}, {"scatter", scatter_row}, {"scatter_add", scatter_add_row}, {"index_add", index_add_row}, {"topk", topk_row}, {"sort", sort_row}, {"argsort", argsort_row},
      {"embedding", embedding_row}, {"embedding_bag", embedding_bag_row}, {"_embedding_bag", embedding_bag_row}, {"masked_select", masked_select_row}, {"nonzero", masked_select_row},
  };
}

}  // namespace stepgraph::pt2
