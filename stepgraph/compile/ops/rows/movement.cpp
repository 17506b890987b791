// SPDX-License-Identifier: Apache-2.0
// Ops that move elements without looking at them. The sharding rule of reshape is in reshape_factors.cpp.
#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/rows/element_expressions.h"
#include "stepgraph/compile/ops/rows/reshape_factors.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

using Gradients = std::vector<std::optional<Value>>;

Cost movement_cost(const CostRequest& request) { return {0, bytes_of(request.results) * 2}; }

const std::byte* element_at(const Literal& literal, int64_t index) { return literal.data() + index * static_cast<int64_t>(size_bytes(literal.dtype())); }
std::byte* element_at(Literal& literal, int64_t index) { return literal.mutable_data() + index * static_cast<int64_t>(size_bytes(literal.dtype())); }

std::string sizes_text(const Sizes& sizes) { return text(Shape(sizes.begin(), sizes.end())); }

// ---- broadcast

std::vector<TensorType> infer_broadcast(const InferRequest& request) {
  const auto& op = std::get<Broadcast>(request.op);
  const TensorType& x = request.inputs[0];
  const TensorType result{x.dtype, op.shape, {}};
  if (op.dims.size() != x.rank()) throw UserError(fmt::format("broadcast: {} dims for {}, wanted one for each of its dims", op.dims.size(), text(x)));
  check_dims("broadcast", op.dims, result);
  check_sizes("broadcast", op.shape, request.module);
  for (size_t i = 0; i < op.dims.size(); ++i) {
    const Dim& target = op.shape[static_cast<size_t>(op.dims[i])];
    if (x.shape[i] == Dim(1) || same_size(request.module, x.shape[i], target)) continue;
    throw UserError(fmt::format("broadcast: dim {} of {} does not stretch to {}{}", i, text(x), text(op.shape), ranges_of(request.module, x.shape, op.shape)));
  }
  return {result};
}

std::vector<Literal> evaluate_broadcast(const EvaluateRequest& request) {
  const auto& op = std::get<Broadcast>(request.op);
  const Literal& x = request.inputs[0];
  const Sizes sizes = sizes_of(request.results[0]);
  const Sizes own = row_major_strides(x.sizes());
  Sizes strides(sizes.size(), 0);
  for (size_t i = 0; i < op.dims.size(); ++i) {
    const auto d = static_cast<size_t>(op.dims[i]);
    if (x.sizes()[i] == sizes[d]) strides[d] = own[i];
    else if (x.sizes()[i] != 1) throw UserError(fmt::format("broadcast: {} does not stretch to {}", sizes_text(x.sizes()), sizes_text(sizes)));
  }
  Literal result = Literal::uninitialised(x.dtype(), sizes);
  if (result.count() > 0) copy_strided(x.data(), result.mutable_data(), size_bytes(x.dtype()), sizes, strides, row_major_strides(sizes));
  return {result};
}

Gradients gradient_broadcast(const GradientRequest& request) {
  const auto& op = std::get<Broadcast>(request.op);
  const Value x = request.inputs[0], g = *request.result_gradients[0];
  std::vector<bool> kept(op.shape.size(), false);
  for (size_t i = 0; i < op.dims.size(); ++i) {
    const auto d = static_cast<size_t>(op.dims[i]);
    kept[d] = !(x.shape()[i] == Dim(1) && op.shape[d] != Dim(1));
  }
  Dims summed;
  for (size_t d = 0; d < kept.size(); ++d) {
    if (!kept[d]) summed.push_back(static_cast<int64_t>(d));
  }
  return {reshape(summed.empty() ? g : sum(g, summed), x.shape())};
}

ShardingRule rule_broadcast(const ShardingRequest& request) {
  const auto& op = std::get<Broadcast>(request.op);
  ShardingRule rule;
  rule.operands.resize(1), rule.results.resize(1);
  for (const Dim& size : op.shape) {
    rule.results[0].emplace_back();
    if (size != Dim(1)) rule.results[0].back().push_back(add_factor(rule, FactorKind::Parallel, size));
  }
  for (size_t i = 0; i < op.dims.size(); ++i) {
    const bool stretched = request.inputs[0].shape[i] == Dim(1);
    rule.operands[0].push_back(stretched ? std::vector<int>{} : rule.results[0][static_cast<size_t>(op.dims[i])]);
  }
  rule.linear_groups = {{0}};
  return rule;
}

std::vector<Value> partition_broadcast(const PartitionRequest& request) {
  Broadcast op = std::get<Broadcast>(request.op);
  op.shape = request.local_result_shape(0);
  return request.builder.emit(std::move(op), request.local_inputs);
}

// ---- reshape

std::vector<TensorType> infer_reshape(const InferRequest& request) {
  const auto& op = std::get<Reshape>(request.op);
  const TensorType& x = request.inputs[0];
  check_sizes("reshape", op.shape, request.module);
  const Dim from = element_count(x.shape), to = element_count(op.shape);
  if (!same_size(request.module, from, to)) {
    throw UserError(fmt::format("reshape: element counts differ, {} has {} and {} has {}{}", text(x), from.text(), text(op.shape), to.text(),
                                ranges_of(request.module, x.shape, op.shape)));
  }
  return {{x.dtype, op.shape, {}}};
}

std::vector<Literal> evaluate_reshape(const EvaluateRequest& request) {
  const Sizes sizes = sizes_of(request.results[0]);
  const Literal& x = request.inputs[0];
  if (element_count(sizes) != x.count()) throw UserError(fmt::format("reshape: element counts differ, {} and {}", sizes_text(x.sizes()), sizes_text(sizes)));
  return {x.reshaped(sizes)};
}

Gradients gradient_reshape(const GradientRequest& request) { return {reshape(*request.result_gradients[0], request.inputs[0].shape())}; }

/// A split merged dim has its minor factors' product as grain (propagation sees to that), so the local element counts agree.
std::vector<Value> partition_reshape(const PartitionRequest& request) {
  return request.builder.emit(Reshape{request.local_result_shape(0)}, request.local_inputs);
}

// ---- transpose

std::vector<TensorType> infer_transpose(const InferRequest& request) {
  const auto& op = std::get<Transpose>(request.op);
  const TensorType& x = request.inputs[0];
  std::vector<int64_t> sorted = op.permutation, wanted(x.rank());
  std::sort(sorted.begin(), sorted.end());
  std::iota(wanted.begin(), wanted.end(), int64_t{0});
  if (sorted != wanted) throw UserError(fmt::format("transpose: {} is no permutation of the dims of {}", sizes_text(op.permutation), text(x)));
  TensorType result{x.dtype, {}, {}};
  for (int64_t dim : op.permutation) result.shape.push_back(x.shape[static_cast<size_t>(dim)]);
  return {result};
}

std::vector<Literal> evaluate_transpose(const EvaluateRequest& request) {
  const auto& op = std::get<Transpose>(request.op);
  const Literal& x = request.inputs[0];
  const Sizes own = row_major_strides(x.sizes());
  Sizes sizes, strides;
  for (int64_t dim : op.permutation) sizes.push_back(x.sizes()[static_cast<size_t>(dim)]), strides.push_back(own[static_cast<size_t>(dim)]);
  Literal result = Literal::uninitialised(x.dtype(), sizes);
  if (result.count() > 0) copy_strided(x.data(), result.mutable_data(), size_bytes(x.dtype()), sizes, strides, row_major_strides(sizes));
  return {result};
}

Gradients gradient_transpose(const GradientRequest& request) {
  const auto& op = std::get<Transpose>(request.op);
  Dims back(op.permutation.size());
  for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(op.permutation[i])] = static_cast<int64_t>(i);
  return {permute(*request.result_gradients[0], back)};
}

ShardingRule rule_transpose(const ShardingRequest& request) {
  const auto& op = std::get<Transpose>(request.op);
  ShardingRule rule;
  rule.operands.resize(1), rule.results.resize(1);
  for (const Dim& size : request.inputs[0].shape) {
    rule.operands[0].emplace_back();
    if (size != Dim(1)) rule.operands[0].back().push_back(add_factor(rule, FactorKind::Parallel, size));
  }
  for (int64_t dim : op.permutation) rule.results[0].push_back(rule.operands[0][static_cast<size_t>(dim)]);
  rule.linear_groups = {{0}};
  return rule;
}

// ---- reverse

std::vector<TensorType> infer_reverse(const InferRequest& request) {
  check_dims("reverse", std::get<Reverse>(request.op).dims, request.inputs[0]);
  return {{request.inputs[0].dtype, request.inputs[0].shape, {}}};
}

std::vector<Literal> evaluate_reverse(const EvaluateRequest& request) {
  const Literal& x = request.inputs[0];
  Literal result = Literal::uninitialised(x.dtype(), x.sizes());
  if (result.count() == 0) return {result};
  Sizes strides = row_major_strides(x.sizes());
  int64_t origin = 0;
  for (int64_t dim : std::get<Reverse>(request.op).dims) {
    const auto d = static_cast<size_t>(dim);
    origin += (x.sizes()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  copy_strided(element_at(x, origin), result.mutable_data(), size_bytes(x.dtype()), x.sizes(), strides, row_major_strides(x.sizes()));
  return {result};
}

Gradients gradient_reverse(const GradientRequest& request) { return {flip(*request.result_gradients[0], std::get<Reverse>(request.op).dims)}; }

ShardingRule rule_reverse(const ShardingRequest& request) {
  ShardingRule rule = elementwise_rule(request, {{0}});
  for (int64_t dim : std::get<Reverse>(request.op).dims) {
    for (int factor : rule.operands[0][static_cast<size_t>(dim)]) rule.factors[static_cast<size_t>(factor)].kind = FactorKind::Replicate;
  }
  return rule;
}

// ---- slice

std::vector<TensorType> infer_slice(const InferRequest& request) {
  const auto& op = std::get<Slice>(request.op);
  const TensorType& x = request.inputs[0];
  if (op.starts.size() != x.rank() || op.limits.size() != x.rank() || op.strides.size() != x.rank()) {
    throw UserError(fmt::format("slice: {} starts, {} limits and {} strides for {}", op.starts.size(), op.limits.size(), op.strides.size(), text(x)));
  }
  const SymbolTable& symbols = request.module.symbols;
  TensorType result{x.dtype, {}, {}};
  for (size_t d = 0; d < x.rank(); ++d) {
    const Dim &start = op.starts[d], &limit = op.limits[d];
    if (op.strides[d] < 1) throw UserError(fmt::format("slice: stride {} in dim {}, wanted at least 1", op.strides[d], d));
    // What cannot be decided passes: evaluation knows the sizes and checks.
    if (symbols.less_or_equal(0, start) == Truth::False || symbols.less_or_equal(start, limit) == Truth::False ||
        symbols.less_or_equal(limit, x.shape[d]) == Truth::False) {
      throw UserError(fmt::format("slice: {} to {} is out of range for dim {} of {}{}", start.text(), limit.text(), d, text(x),
                                  ranges_of(request.module, x.shape, {start, limit})));
    }
    result.shape.push_back(op.strides[d] == 1 ? limit - start : ceildiv(limit - start, op.strides[d]));
  }
  return {result};
}

std::vector<Literal> evaluate_slice(const EvaluateRequest& request) {
  const auto& op = std::get<Slice>(request.op);
  const Literal& x = request.inputs[0];
  const Sizes sizes = sizes_of(request.results[0]);
  Sizes strides = row_major_strides(x.sizes());
  int64_t origin = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t start = op.starts[d].constant(), limit = op.limits[d].constant();
    if (start < 0 || start > limit || limit > x.sizes()[d]) {
      throw UserError(fmt::format("slice: {} to {} is out of range for dim {} of {}", start, limit, d, sizes_text(x.sizes())));
    }
    origin += start * strides[d];
    strides[d] *= op.strides[d];
  }
  if (sizes == x.sizes()) return {x};
  Literal result = Literal::uninitialised(x.dtype(), sizes);
  if (result.count() > 0) copy_strided(element_at(x, origin), result.mutable_data(), size_bytes(x.dtype()), sizes, strides, row_major_strides(sizes));
  return {result};
}

Gradients gradient_slice(const GradientRequest& request) {
  const auto& op = std::get<Slice>(request.op);
  const Value x = request.inputs[0], g = *request.result_gradients[0];
  Pad back;
  for (size_t d = 0; d < x.shape().size(); ++d) {
    const int64_t gap = op.strides[d] - 1;
    const Dim& count = g.shape()[d];
    const Dim covered = gap == 0 ? count : count + max(count - 1, Dim(0)) * gap;
    back.low.push_back(op.starts[d]);
    back.high.push_back(gap == 0 ? x.shape()[d] - op.limits[d] : x.shape()[d] - op.starts[d] - covered);
    back.interior.push_back(gap);
  }
  const Value padded = request.builder.emit_one(std::move(back), {g, scalar(request.builder, g.dtype(), 0)});
  return {padded};
}

bool is_whole(const Slice& op, const TensorType& x, size_t d) { return op.starts[d] == Dim(0) && op.limits[d] == x.shape[d] && op.strides[d] == 1; }

/// Dims that are cut stay whole on every rank.
ShardingRule rule_slice(const ShardingRequest& request) {
  const auto& op = std::get<Slice>(request.op);
  ShardingRule rule;
  rule.operands.resize(1), rule.results.resize(1);
  const TensorType& x = request.inputs[0];
  for (size_t d = 0; d < x.rank(); ++d) {
    std::vector<int> factors;
    if (is_whole(op, x, d) && x.shape[d] != Dim(1)) factors.push_back(add_factor(rule, FactorKind::Parallel, x.shape[d]));
    rule.operands[0].push_back(factors), rule.results[0].push_back(std::move(factors));
  }
  rule.linear_groups = {{0}};
  return rule;
}

std::vector<Value> partition_slice(const PartitionRequest& request) {
  Slice op = std::get<Slice>(request.op);
  for (size_t d = 0; d < op.limits.size(); ++d) {
    if (is_whole(op, request.inputs[0], d)) op.limits[d] = request.local_inputs[0].shape()[d];
  }
  return request.builder.emit(std::move(op), request.local_inputs);
}

// ---- pad

Dim padded_size(const Dim& size, const Dim& low, const Dim& high, int64_t interior) {
  return interior == 0 ? low + size + high : low + size + max(size - 1, Dim(0)) * interior + high;
}

std::vector<TensorType> infer_pad(const InferRequest& request) {
  const auto& op = std::get<Pad>(request.op);
  const TensorType &x = request.inputs[0], &value = request.inputs[1];
  if (op.low.size() != x.rank() || op.high.size() != x.rank() || op.interior.size() != x.rank()) {
    throw UserError(fmt::format("pad: {} low, {} high and {} interior for {}", op.low.size(), op.high.size(), op.interior.size(), text(x)));
  }
  if (value.rank() != 0 || value.dtype != x.dtype) throw UserError(fmt::format("pad: value is {}, wanted {}[]", text(value), name(x.dtype)));
  const SymbolTable& symbols = request.module.symbols;
  TensorType result{x.dtype, {}, {}};
  for (size_t d = 0; d < x.rank(); ++d) {
    if (op.interior[d] < 0 || symbols.less_or_equal(0, op.low[d]) == Truth::False || symbols.less_or_equal(0, op.high[d]) == Truth::False) {
      throw UserError(fmt::format("pad: negative padding in dim {} of {}: low {}, high {}, interior {}", d, text(x), op.low[d].text(), op.high[d].text(),
                                  op.interior[d]));
    }
    result.shape.push_back(padded_size(x.shape[d], op.low[d], op.high[d], op.interior[d]));
  }
  return {result};
}

std::vector<Literal> evaluate_pad(const EvaluateRequest& request) {
  const auto& op = std::get<Pad>(request.op);
  const Literal& x = request.inputs[0];
  const Sizes sizes = sizes_of(request.results[0]);
  const size_t width = size_bytes(x.dtype());
  Sizes strides = row_major_strides(sizes);
  int64_t origin = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (op.low[d].constant() < 0 || op.high[d].constant() < 0) {
      throw UserError(fmt::format("pad: negative padding in dim {}: low {}, high {}", d, op.low[d].text(), op.high[d].text()));
    }
    origin += op.low[d].constant() * strides[d];
  }
  Literal result = Literal::uninitialised(x.dtype(), sizes);
  if (result.count() == 0) return {result};
  copy_strided(request.inputs[1].data(), result.mutable_data(), width, sizes, Sizes(sizes.size(), 0), strides);
  for (size_t d = 0; d < sizes.size(); ++d) strides[d] *= op.interior[d] + 1;
  if (x.count() > 0) copy_strided(x.data(), element_at(result, origin), width, x.sizes(), row_major_strides(x.sizes()), strides);
  return {result};
}

Gradients gradient_pad(const GradientRequest& request) {
  const auto& op = std::get<Pad>(request.op);
  const Value x = request.inputs[0], g = *request.result_gradients[0];
  Gradients result(2);
  if (request.needed[0]) {
    // A limit that makes the stride divide: then the size is x's own expression, symbolic or not. It may lie up to `interior` beyond the end of g.
    Slice back;
    Pad beyond{Shape(x.shape().size(), Dim(0)), {}, std::vector<int64_t>(x.shape().size(), 0)};
    for (size_t d = 0; d < x.shape().size(); ++d) {
      back.starts.push_back(op.low[d]);
      back.limits.push_back(op.low[d] + x.shape()[d] * (op.interior[d] + 1));
      back.strides.push_back(op.interior[d] + 1);
      beyond.high.push_back(op.interior[d]);
    }
    const bool gaps = std::any_of(op.interior.begin(), op.interior.end(), [](int64_t interior) { return interior > 0; });
    const Value whole = gaps ? request.builder.emit_one(std::move(beyond), {g, scalar(request.builder, g.dtype(), 0)}) : g;
    result[0] = request.builder.emit_one(std::move(back), {whole});
  }
  if (request.needed[1]) {
    // Where the value stands: the same padding of `false` with `true`. A difference of sums would cancel.
    const Value inside = full(request.builder, DType::Bool, x.shape(), 0);
    const Value outside = request.builder.emit_one(op, {inside, scalar(request.builder, DType::Bool, 1)});
    result[1] = sum(where(outside, g, zeros_like(g)));
  }
  return result;
}

/// Padded dims stay whole. Not linear: the value is there once, not once for each partial result.
ShardingRule rule_pad(const ShardingRequest& request) {
  const auto& op = std::get<Pad>(request.op);
  ShardingRule rule;
  rule.operands.resize(2), rule.results.resize(1);
  const Shape& shape = request.inputs[0].shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool whole = op.low[d] == Dim(0) && op.high[d] == Dim(0) && op.interior[d] == 0;
    std::vector<int> factors;
    if (whole && shape[d] != Dim(1)) factors.push_back(add_factor(rule, FactorKind::Parallel, shape[d]));
    rule.operands[0].push_back(factors), rule.results[0].push_back(std::move(factors));
  }
  return rule;
}

// ---- concatenate

std::vector<TensorType> infer_concatenate(const InferRequest& request) {
  const auto dim = static_cast<size_t>(std::get<Concatenate>(request.op).dim);
  TensorType result{request.inputs[0].dtype, request.inputs[0].shape, {}};
  check_dim("concatenate", std::get<Concatenate>(request.op).dim, result);
  for (const TensorType& input : request.inputs.subspan(1)) {
    check_same_dtype("concatenate", request.inputs[0], input);
    bool fits = input.rank() == result.rank();
    for (size_t d = 0; fits && d < input.rank(); ++d) fits = d == dim || same_size(request.module, input.shape[d], result.shape[d]);
    if (!fits) {
      throw UserError(fmt::format("concatenate: shapes differ outside dim {}, {} and {}{}", dim, text(request.inputs[0]), text(input),
                                  ranges_of(request.module, request.inputs[0].shape, input.shape)));
    }
    result.shape[dim] = result.shape[dim] + input.shape[dim];
  }
  return {result};
}

std::vector<Literal> evaluate_concatenate(const EvaluateRequest& request) {
  const auto dim = static_cast<size_t>(std::get<Concatenate>(request.op).dim);
  Literal result = Literal::uninitialised(request.results[0].dtype, sizes_of(request.results[0]));
  const Sizes strides = row_major_strides(result.sizes());
  int64_t at = 0;
  for (const Literal& input : request.inputs) {
    for (size_t d = 0; d < input.rank(); ++d) {
      if (d != dim && input.sizes()[d] != result.sizes()[d]) {
        throw UserError(fmt::format("concatenate: shapes differ outside dim {}, {} in {}", dim, sizes_text(input.sizes()), sizes_text(result.sizes())));
      }
    }
    if (input.count() > 0) {
      copy_strided(input.data(), element_at(result, at), size_bytes(input.dtype()), input.sizes(), row_major_strides(input.sizes()), strides);
    }
    at += input.sizes()[dim] * strides[dim];
  }
  return {result};
}

Gradients gradient_concatenate(const GradientRequest& request) {
  const int64_t dim = std::get<Concatenate>(request.op).dim;
  Gradients result(request.inputs.size());
  Dim start = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    const Dim limit = start + request.inputs[i].dim(dim);
    if (request.needed[i]) result[i] = slice(*request.result_gradients[0], dim, start, limit);
    start = limit;
  }
  return result;
}

ShardingRule rule_concatenate(const ShardingRequest& request) {
  const auto dim = static_cast<size_t>(std::get<Concatenate>(request.op).dim);
  ShardingRule rule;
  DimFactors dims;
  const Shape& shape = request.results[0].shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.emplace_back();
    if (d != dim && shape[d] != Dim(1)) dims.back().push_back(add_factor(rule, FactorKind::Parallel, shape[d]));
  }
  rule.operands.assign(request.inputs.size(), dims);
  rule.results = {dims};
  rule.linear_groups = {first_operands(request.inputs.size())};
  return rule;
}

OpInfo move_row(Gradients (*gradient)(const GradientRequest&), ShardingRule (*rule)(const ShardingRequest&)) {
  OpInfo row;
  row.gradient = gradient;
  row.sharding_rule = rule;
  row.cost = movement_cost;
  return row;
}

}  // namespace

OpInfo row_of(OpType<Broadcast>) {
  OpInfo row = move_row(gradient_broadcast, rule_broadcast);
  row.infer = infer_broadcast;
  row.evaluate = evaluate_broadcast;
  row.element_kind = ElementKind::View;
  row.element = broadcast_element;
  row.partition = partition_broadcast;
  return row;
}

OpInfo row_of(OpType<Reshape>) {
  OpInfo row = move_row(gradient_reshape, reshape_rule);
  row.infer = infer_reshape;
  row.evaluate = evaluate_reshape;
  row.element_kind = ElementKind::View;
  row.element = reshape_element;
  row.partition = partition_reshape;
  return row;
}

OpInfo row_of(OpType<Transpose>) {
  OpInfo row = move_row(gradient_transpose, rule_transpose);
  row.infer = infer_transpose;
  row.evaluate = evaluate_transpose;
  row.element_kind = ElementKind::View;
  row.element = transpose_element;
  return row;
}

OpInfo row_of(OpType<Reverse>) {
  OpInfo row = move_row(gradient_reverse, rule_reverse);
  row.infer = infer_reverse;
  row.evaluate = evaluate_reverse;
  row.element_kind = ElementKind::View;
  row.element = reverse_element;
  return row;
}

OpInfo row_of(OpType<Slice>) {
  OpInfo row = move_row(gradient_slice, rule_slice);
  row.infer = infer_slice;
  row.evaluate = evaluate_slice;
  row.element_kind = ElementKind::View;
  row.element = slice_element;
  row.partition = partition_slice;
  return row;
}

OpInfo row_of(OpType<Pad>) {
  OpInfo row = move_row(gradient_pad, rule_pad);
  row.operands = {2, 2};
  row.infer = infer_pad;
  row.evaluate = evaluate_pad;
  row.element_kind = ElementKind::Pointwise;
  row.element = pad_element;
  return row;
}

OpInfo row_of(OpType<Concatenate>) {
  OpInfo row = move_row(gradient_concatenate, rule_concatenate);
  row.operands = {1, any_number};
  row.infer = infer_concatenate;
  row.evaluate = evaluate_concatenate;
  row.element_kind = ElementKind::Pointwise;
  row.element = concatenate_element;
  return row;
}

}  // namespace stepgraph
