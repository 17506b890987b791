// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/rows/element_expressions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

/// The index of the operand's element where dims are reduced: `at` along the kept ones.
std::vector<Affine> with_reduced(const ElementRequest& request, std::span<const int64_t> dims) {
  std::vector<Affine> index;
  size_t kept = 0, reduced = 0;
  for (size_t d = 0; d < request.inputs[0].rank(); ++d) {
    const bool is_reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    index.push_back(is_reduced ? request.reduced[reduced++] : request.at[kept++]);
  }
  return index;
}

/// Factors of the reduced dims; those of one element have none.
std::vector<int> reduced_factors(const ElementRequest& request) {
  std::vector<int> factors;
  for (const Affine& index : request.reduced)
    for (const AffineTerm& term : index.terms) factors.push_back(term.factor);
  return factors;
}

}  // namespace

std::optional<int> constant_element(const ElementRequest& request) {
  const Literal& value = std::get<Constant>(request.op).value;
  if (!is_splat(value)) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, value.data(), size_bytes(value.dtype()));
  return request.form.add(ConstantExpr{bits}, {}, value.dtype());
}

std::optional<int> iota_element(const ElementRequest& request) {
  const auto& iota = std::get<Iota>(request.op);
  const int number = request.form.index(request.at[static_cast<size_t>(iota.dim)] + affine_constant(iota.start));
  return request.form.convert(iota.dtype, number);
}

std::optional<int> size_value_element(const ElementRequest& request) {
  const auto& value = std::get<SizeValue>(request.op);
  return request.form.convert(value.dtype, request.form.index(affine_constant(value.dim)));
}

std::optional<int> random_element(const ElementRequest& request) {
  const auto& random = std::get<Random>(request.op);
  std::vector<Affine> place;
  for (size_t d = 0; d < request.at.size(); ++d) place.push_back(request.at[d] + affine_constant(random.place.starts[d]));
  const int number = request.form.index(number_of_index(place, random.place.global_shape));
  return request.form.add(DrawExpr{random.kind}, {request.operands.element(0, {}), number}, random.dtype);
}

std::optional<int> fold_in_element(const ElementRequest& request) {
  const int key = request.operands.element(0, {});
  return request.form.add(FoldExpr{}, {key, request.operands.element(1, {})}, DType::I64);
}

std::optional<int> unary_element(const ElementRequest& request) {
  return request.form.unary(std::get<Unary>(request.op).kind, request.operands.element(0, request.index()));
}

std::optional<int> binary_element(const ElementRequest& request) {
  const int a = request.operands.element(0, request.index());
  return request.form.binary(std::get<Binary>(request.op).kind, a, request.operands.element(1, request.index()));
}

std::optional<int> compare_element(const ElementRequest& request) {
  const int a = request.operands.element(0, request.index());
  return request.form.compare(std::get<Compare>(request.op).kind, a, request.operands.element(1, request.index()));
}

std::optional<int> select_element(const ElementRequest& request) {
  const int condition = request.operands.element(0, request.index());
  const int on_true = request.operands.element(1, request.index());
  return request.form.select(condition, on_true, request.operands.element(2, request.index()));
}

std::optional<int> convert_element(const ElementRequest& request) {
  return request.form.convert(std::get<Convert>(request.op).dtype, request.operands.element(0, request.index()));
}

std::optional<int> stop_gradient_element(const ElementRequest& request) { return request.operands.element(0, request.index()); }

std::optional<int> reduce_element(const ElementRequest& request) {
  const auto& reduce = std::get<Reduce>(request.op);
  const int x = request.operands.element(0, with_reduced(request, reduce.dims));
  return request.form.reduce(reduce.kind, x, reduced_factors(request));
}

std::optional<int> arg_reduce_element(const ElementRequest& request) {
  const auto& reduce = std::get<ArgReduce>(request.op);
  const std::vector<int64_t> dims = {reduce.dim};
  const int x = request.operands.element(0, with_reduced(request, dims));
  const std::vector<int> factors = reduced_factors(request);
  if (factors.empty()) return request.form.integer(DType::I64, 0);
  if (factors.size() != 1) return std::nullopt;  // a number along the dim is that along its only factor
  return request.form.add(ArgReduceExpr{reduce.kind == ArgReduceKind::ArgMax, factors[0]}, {x}, DType::I64);
}

/// In two passes: the mean, then the mean of squared deviations from it.
std::optional<int> moments_element(const ElementRequest& request) {
  const auto& moments = std::get<Moments>(request.op);
  FormBuilder& form = request.form;
  const DType dtype = request.inputs[0].dtype;
  const DType wide = wide_dtype(dtype);
  Dim count = 1;
  for (const int64_t d : moments.dims) count = count * request.inputs[0].shape[static_cast<size_t>(d)];
  const int divisor = count.is_constant() ? form.constant(wide, static_cast<double>(count.constant())) : form.convert(wide, form.index(affine_constant(count)));
  const std::vector<int> factors = reduced_factors(request);
  const int x = form.convert(wide, request.operands.element(0, with_reduced(request, moments.dims)));
  const int mean = form.binary(BinaryKind::Divide, form.reduce(ReduceKind::Sum, x, factors), divisor);
  if (request.result == 0) return form.convert(dtype, mean);
  const int deviation = form.binary(BinaryKind::Subtract, x, mean);
  const int square = form.binary(BinaryKind::Multiply, deviation, deviation);
  return form.convert(dtype, form.binary(BinaryKind::Divide, form.reduce(ReduceKind::Sum, square, factors), divisor));
}

std::optional<int> broadcast_element(const ElementRequest& request) {
  const auto& broadcast = std::get<Broadcast>(request.op);
  std::vector<Affine> index;
  for (size_t d = 0; d < request.inputs[0].rank(); ++d)
    index.push_back(request.inputs[0].shape[d] == Dim(1) ? Affine{} : request.at[static_cast<size_t>(broadcast.dims[d])]);
  return request.operands.element(0, std::move(index));
}

std::optional<int> reshape_element(const ElementRequest& request) {
  return request.operands.element_number(0, number_of_index(request.at, request.results[0].shape));
}

std::optional<int> transpose_element(const ElementRequest& request) {
  const auto& permutation = std::get<Transpose>(request.op).permutation;
  std::vector<Affine> index(permutation.size());
  for (size_t d = 0; d < permutation.size(); ++d) index[static_cast<size_t>(permutation[d])] = request.at[d];
  return request.operands.element(0, std::move(index));
}

std::optional<int> reverse_element(const ElementRequest& request) {
  std::vector<Affine> index = request.index();
  for (const int64_t d : std::get<Reverse>(request.op).dims) {
    Affine& along = index[static_cast<size_t>(d)];
    along = along * Dim(-1) + affine_constant(request.results[0].shape[static_cast<size_t>(d)] - Dim(1));
  }
  return request.operands.element(0, std::move(index));
}

std::optional<int> slice_element(const ElementRequest& request) {
  const auto& slice = std::get<Slice>(request.op);
  std::vector<Affine> index = request.index();
  for (size_t d = 0; d < index.size(); ++d) index[d] = index[d] * Dim(slice.strides[d]) + affine_constant(slice.starts[d]);
  return request.operands.element(0, std::move(index));
}

std::optional<int> pad_element(const ElementRequest& request) {
  const auto& pad = std::get<Pad>(request.op);
  if (std::any_of(pad.interior.begin(), pad.interior.end(), [](int64_t between) { return between != 0; })) return std::nullopt;
  std::vector<Affine> index = request.index();
  std::vector<bool> guarded;
  for (size_t d = 0; d < index.size(); ++d) {
    index[d] = index[d] + affine_constant(Dim(0) - pad.low[d]);
    guarded.push_back(pad.low[d] != Dim(0) || pad.high[d] != Dim(0));
  }
  const int outside = request.operands.element(1, {});
  return request.operands.element_within(0, std::move(index), guarded, outside);
}

std::optional<int> concatenate_element(const ElementRequest& request) {
  const auto dim = static_cast<size_t>(std::get<Concatenate>(request.op).dim);
  std::vector<Dim> starts;
  Dim start = 0;
  for (const TensorType& input : request.inputs) {
    starts.push_back(start);
    start = start + input.shape[dim];
  }
  std::vector<bool> guarded(request.at.size(), false);
  guarded[dim] = true;
  // Each operand within its own part; outside of it the ones after it.
  int value = request.form.constant(request.results[0].dtype, 0);
  for (size_t i = request.inputs.size(); i-- > 0;) {
    std::vector<Affine> index = request.index();
    index[dim] = index[dim] + affine_constant(Dim(0) - starts[i]);
    value = request.operands.element_within(i, std::move(index), guarded, value);
  }
  return value;
}

std::optional<int> index_select_element(const ElementRequest& request) {
  const auto dim = static_cast<size_t>(std::get<IndexSelect>(request.op).dim);
  const size_t index_rank = request.inputs[1].rank();
  const auto first = request.at.begin() + static_cast<std::ptrdiff_t>(dim), last = first + static_cast<std::ptrdiff_t>(index_rank);
  const int index = request.form.convert(DType::I64, request.operands.element(1, std::vector<Affine>(first, last)));
  std::vector<Affine> at(request.at.begin(), first);
  at.emplace_back();
  at.insert(at.end(), last, request.at.end());
  return request.operands.element_at(0, std::move(at), dim, index);
}

std::optional<int> gather_element(const ElementRequest& request) {
  const auto dim = static_cast<size_t>(std::get<Gather>(request.op).dim);
  const int index = request.form.convert(DType::I64, request.operands.element(1, request.index()));
  std::vector<Affine> at = request.index();
  at[dim] = {};
  return request.operands.element_at(0, std::move(at), dim, index);
}

}  // namespace stepgraph
