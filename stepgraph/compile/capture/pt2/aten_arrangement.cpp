// SPDX-License-Identifier: Apache-2.0
// Views and movement beyond the everyday ones: stacks and splits by direction, turned and shuffled tensors, copies of what is otherwise a view.
#include <algorithm>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// The row of the same operator without a prefix or suffix of its name.
void run_as(OperatorCall& call, const std::string& part) {
  std::string target = call.node().target;
  target.erase(target.find(part), part.size());
  const Row row = find_row(target);
  if (!row) call.fail("unknown operator");
  row(call);
}
/// What is otherwise a view shares nothing with its base.
void copied_row(OperatorCall& call) {
  run_as(call, "_copy");
  for (Item& item : call.outputs()) {
    if (Tensor* tensor = std::get_if<Tensor>(&item)) *tensor = Tensor(tensor->value());
    if (auto* list = std::get_if<std::vector<Tensor>>(&item))
      for (Tensor& tensor : *list) tensor = Tensor(tensor.value());
  }
}
void unsafe_row(OperatorCall& call) { run_as(call, "unsafe_"); }

Tensor reshaped(const Tensor& tensor, const Shape& shape) {
  const Shape from = tensor.value().shape();
  return tensor.view({[shape](const Value& x) { return reshape(x, shape); }, [from](const Value&, const Value& v) { return reshape(v, from); }});
}
/// [] and [n] grow to `rank` dims as NumPy's atleast functions do.
Shape grown(const Shape& shape, int64_t rank) {
  Shape made = shape;
  if (rank >= 1 && made.empty()) made.emplace_back(1);
  if (rank >= 2 && made.size() == 1) made.insert(made.begin(), Dim(1));
  if (rank >= 3 && made.size() == 2) made.emplace_back(1);
  return made;
}
template <int rank>
void at_least_row(OperatorCall& call) {
  if (call.has("self")) return call.alias(reshaped(call.handle("self"), grown(call.tensor("self").shape(), rank)));
  std::vector<Tensor> made;
  for (const Tensor& tensor : call.handles("tensors")) made.push_back(reshaped(tensor, grown(tensor.value().shape(), rank)));
  call.alias_list(std::move(made));
}
std::vector<Value> of_one_type(OperatorCall& call) {
  std::vector<Value> values = call.tensors("tensors");
  if (values.empty()) call.fail("found no tensors");
  const DType dtype = result_type(std::vector<Operand>(values.begin(), values.end()));
  for (Value& value : values) value = convert(value, dtype);
  return values;
}
/// hstack, vstack, dstack: along dim 1 (0 for vectors), 0, 2.
template <int rank, int dim>
void stack_of_row(OperatorCall& call) {
  std::vector<Value> values = of_one_type(call);
  for (Value& value : values) value = reshape(value, grown(value.shape(), rank));
  call.result(concatenate(values, values[0].rank() == 1 ? 0 : dim));
}
void column_stack_row(OperatorCall& call) {
  std::vector<Value> values = of_one_type(call);
  for (Value& value : values)
    if (value.rank() < 2) value = reshape(value, {element_count(value.shape()), Dim(1)});
  call.result(concatenate(values, 1));
}

Tensor part_of(const Tensor& tensor, int64_t dim, const Dim& start, const Dim& limit) {
  return tensor.view({[=](const Value& x) { return slice(x, dim, start, limit); },
                      [=](const Value& base, const Value& v) {
                        std::vector<Value> parts;
                        if (!(start == Dim(0))) parts.push_back(slice(base, dim, 0, start));
                        parts.push_back(v);
                        if (!(limit == base.dim(dim))) parts.push_back(slice(base, dim, limit, base.dim(dim)));
                        return parts.size() == 1 ? v : concatenate(parts, dim);
                      }});
}
/// Into a number of parts of which the first are one longer, or before each of some positions.
void split_parts(OperatorCall& call, int64_t dim) {
  const Value x = call.tensor("self");
  const Dim size = x.dim(dim);
  const SymbolTable& symbols = call.builder().module().symbols;
  Shape ends;
  if (call.has("indices")) {
    for (const Dim& at : call.sizes("indices"))
      ends.push_back(symbols.simplify(at.is_constant() && at.constant() < 0 ? max(Dim(0), size + at) : min(at, size)));
    ends.push_back(size);
  } else {
    const int64_t sections = call.integer("sections");
    if (sections < 1) call.fail("found " + std::to_string(sections) + " sections, wanted at least 1");
    for (int64_t i = 1; i <= sections; ++i) ends.push_back(symbols.simplify(floordiv(size, Dim(sections)) * i + min(Dim(i), mod(size, Dim(sections)))));
    ends.back() = size;
  }
  std::vector<Tensor> parts;
  Dim start = 0;
  for (const Dim& end : ends) {
    parts.push_back(part_of(call.handle("self"), dim, start, symbols.simplify(max(start, end))));
    start = end;
  }
  call.alias_list(std::move(parts));
}
void tensor_split_row(OperatorCall& call) {
  if (call.has("tensor_indices_or_sections")) call.fail("positions in a tensor depend on data");
  split_parts(call, call.wrap(call.integer("dim", 0), call.tensor("self").rank()));
}
template <int dim>
void directed_split_row(OperatorCall& call) {
  split_parts(call, dim == 1 && call.tensor("self").rank() == 1 ? 0 : dim);
}

void flip_last(OperatorCall& call, int64_t dim) { call.result(flip(call.tensor("self"), {dim})); }
void fliplr_row(OperatorCall& call) { flip_last(call, 1); }
void flipud_row(OperatorCall& call) { flip_last(call, 0); }
void rot90_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const std::vector<int64_t> dims = call.integers("dims", {0, 1});
  if (dims.size() != 2) call.fail("found " + std::to_string(dims.size()) + " dims, wanted 2");
  const int64_t a = call.wrap(dims[0], x.rank()), b = call.wrap(dims[1], x.rank()), turns = ((call.integer("k", 1) % 4) + 4) % 4;
  if (turns == 0) return call.result(x);
  if (turns == 2) return call.result(flip(x, {a, b}));
  call.result(transpose(flip(x, {turns == 1 ? b : a}), a, b));
}
void channel_shuffle_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Dim groups = call.size("groups");
  const auto per_group = exact_quotient(x.dim(1), groups);
  if (!per_group) call.fail(x.dim(1).text() + " channels are no multiple of " + groups.text());
  Shape apart{x.dim(0), groups, *per_group};
  apart.insert(apart.end(), x.shape().begin() + 2, x.shape().end());
  call.result(reshape(transpose(reshape(x, apart), 1, 2), x.shape()));
}
void ravel_row(OperatorCall& call) { call.reshaped({element_count(call.tensor("self").shape())}); }
void positive_row(OperatorCall& call) { call.alias(call.handle("self")); }
/// Sums over what was broadcast.
void sum_to_size_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Shape shape = call.sizes("size");
  const int64_t added = x.rank() - static_cast<int64_t>(shape.size());
  if (added < 0) call.fail("cannot sum " + text(x.type()) + " to " + text(shape));
  Dims dims;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d < added || (shape[static_cast<size_t>(d - added)] == Dim(1) && !(x.dim(d) == Dim(1)))) dims.push_back(d);
  call.result(dims.empty() ? x : reshape(sum(x, dims, true), shape));
}
/// Rows and columns below (above) a diagonal, in row-major order.
template <bool lower>
void triangle_indices_row(OperatorCall& call) {
  const int64_t rows = call.integer("row"), columns = call.integer("col"), offset = call.integer("offset", 0);
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (lower ? j - i <= offset : j - i >= offset) first.push_back(i), second.push_back(j);
  const auto count = static_cast<int64_t>(first.size());
  first.insert(first.end(), second.begin(), second.end());
  call.result(convert(constant(call.builder(), Literal::from_integers(DType::I64, {2, count}, first)), call.dtype().value_or(DType::I64)));
}
/// Each element as often as `repeats` says; the size must be given.
void repeat_each_row(OperatorCall& call) {
  const bool only_positions = !call.has("self");
  Value repeats = call.tensor("repeats");
  if (!call.has("output_size")) call.fail("the size of the result depends on data; give output_size");
  Value x = only_positions ? repeats : call.tensor("self");
  const bool flat = only_positions || !call.has("dim");
  if (flat) x = reshape(x, {element_count(x.shape())});
  const int64_t dim = flat ? 0 : call.wrap(call.integer("dim"), x.rank());
  repeats = broadcast_to(reshape(convert(repeats, DType::I64), {element_count(repeats.shape())}), {x.dim(dim)});
  // Element k of the result comes from the first element at which more than k are counted.
  const Dim size = call.size("output_size");
  const Value position = reshape(iota(call.builder(), DType::I64, {size}, 0), {size, Dim(1)});
  const Value from = sum(convert(less_equal(unsqueeze(cumsum(repeats, 0), 0), position), DType::I64), {1});
  call.result(only_positions ? from : index_select(x, dim, from));
}

}  // namespace

std::vector<NamedRow> arrangement_rows() {
  return {
      {"permute_copy", copied_row},
      {"expand_copy", copied_row},
      {"view_copy", copied_row},
      {"t_copy", copied_row},
      {"transpose_copy", copied_row},
      {"unsqueeze_copy", copied_row},
      {"squeeze_copy", copied_row},
      {"unbind_copy", copied_row},
      {"split_copy", copied_row},
      {"split_with_sizes_copy", copied_row},
      {"select_copy", copied_row},
      {"slice_copy", copied_row},
      {"diagonal_copy", copied_row},
      {"alias_copy", copied_row},
      {"unfold_copy", copied_row},
      {"as_strided_copy", copied_row},
      {"narrow_copy", copied_row},
      {"unsafe_chunk", unsafe_row},
      {"unsafe_split", unsafe_row},
      {"unsafe_split_with_sizes", unsafe_row},
      {"atleast_1d", at_least_row<1>},
      {"atleast_2d", at_least_row<2>},
      {"atleast_3d", at_least_row<3>},
      {"hstack", stack_of_row<1, 1>},
      {"vstack", stack_of_row<2, 0>},
      {"row_stack", stack_of_row<2, 0>},
      {"dstack", stack_of_row<3, 2>},
      {"column_stack", column_stack_row},
      {"tensor_split", tensor_split_row},
      {"hsplit", directed_split_row<1>},
      {"vsplit", directed_split_row<0>},
      {"dsplit", directed_split_row<2>},
      {"fliplr", fliplr_row},
      {"flipud", flipud_row},
      {"rot90", rot90_row},
      {"channel_shuffle", channel_shuffle_row},
      {"native_channel_shuffle", channel_shuffle_row},
      {"ravel", ravel_row},
      {"positive", positive_row},
      {"conj_physical", positive_row},
      {"sum_to_size", sum_to_size_row},
      {"tril_indices", triangle_indices_row<true>},
      {"triu_indices", triangle_indices_row<false>},
      {"repeat_interleave.self_Tensor", repeat_each_row},
      {"repeat_interleave.Tensor", repeat_each_row},
  };
}

}  // namespace stepgraph::pt2
