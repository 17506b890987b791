// SPDX-License-Identifier: Apache-2.0
// Values from nothing: constants, iota, sizes, random numbers.
#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/kernels/draws.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/element_expressions.h"
#include "stepgraph/compile/ops/rows/rows.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/tensor/philox.h"

namespace stepgraph {
namespace {

Cost fill_cost(const CostRequest& request) { return {0, bytes_of(request.results)}; }

/// One Parallel factor for each dim of the result; operands, if any, are scalars.
ShardingRule fill_rule(const ShardingRequest& request) {
  ShardingRule rule;
  rule.results.emplace_back();
  for (const Dim& size : request.results[0].shape) {
    rule.results[0].emplace_back();
    if (size != Dim(1)) rule.results[0].back().push_back(add_factor(rule, FactorKind::Parallel, size));
  }
  rule.operands.resize(request.inputs.size());
  return rule;
}

Dim result_start(const PartitionRequest& request, size_t dim) {
  const TensorType& type = request.results[0];
  return type.sharding ? request.sizes.start(type.shape[dim], type.sharding->dims[dim]) : Dim(0);
}

// ---- constant

std::vector<TensorType> infer_constant(const InferRequest& request) {
  const Literal& value = std::get<Constant>(request.op).value;
  return {{value.dtype(), Shape(value.sizes().begin(), value.sizes().end()), {}}};
}
std::vector<Literal> evaluate_constant(const EvaluateRequest& request) { return {std::get<Constant>(request.op).value}; }

Literal first_element(const Literal& value) {
  Literal scalar = Literal::uninitialised(value.dtype(), {});
  std::memcpy(scalar.mutable_data(), value.data(), size_bytes(value.dtype()));
  return scalar;
}

std::vector<Value> partition_constant(const PartitionRequest& request) {
  const Literal& value = std::get<Constant>(request.op).value;
  const Shape local = request.local_result_shape(0);
  Builder& builder = request.builder;
  if (local == request.results[0].shape) return {constant(builder, value)};
  if (is_splat(value)) return {broadcast_to(constant(builder, first_element(value)), local)};
  Slice slice;
  for (size_t d = 0; d < local.size(); ++d) {
    slice.starts.push_back(result_start(request, d));
    slice.limits.push_back(slice.starts.back() + local[d]);
    slice.strides.push_back(1);
  }
  return {builder.emit_one(std::move(slice), {constant(builder, value)})};
}

// ---- iota

std::vector<TensorType> infer_iota(const InferRequest& request) {
  const auto& op = std::get<Iota>(request.op);
  if (op.dtype == DType::Bool) throw UserError("iota: bool does not count, wanted an integer or floating dtype");
  const TensorType type{op.dtype, op.shape, {}};
  check_dim("iota", op.dim, type);
  check_sizes("iota", op.shape, request.module);
  return {type};
}

std::vector<Literal> evaluate_iota(const EvaluateRequest& request) {
  const auto& op = std::get<Iota>(request.op);
  const Sizes sizes = sizes_of(request.results[0]);
  Literal result = Literal::uninitialised(op.dtype, sizes);
  if (result.count() == 0) return {result};
  const auto dim = static_cast<size_t>(op.dim);
  const int64_t length = sizes[dim], inner = row_major_strides(sizes)[dim], outer = result.count() / (length * inner);
  const size_t width = size_bytes(op.dtype);
  std::byte* data = result.mutable_data();
  for (int64_t i = 0; i < length; ++i) {
    const int64_t value = wrap_add(op.start.constant(), i);
    std::byte* run = data + static_cast<size_t>(i * inner) * width;
    store_elements(op.dtype, run, 1, &value);
    for (int64_t k = 1; k < inner; ++k) std::memcpy(run + static_cast<size_t>(k) * width, run, width);
  }
  const size_t block = static_cast<size_t>(length * inner) * width;
  for (int64_t o = 1; o < outer; ++o) std::memcpy(data + static_cast<size_t>(o) * block, data, block);
  return {result};
}

std::vector<Value> partition_iota(const PartitionRequest& request) {
  Iota op = std::get<Iota>(request.op);
  op.start = op.start + result_start(request, static_cast<size_t>(op.dim));
  op.shape = request.local_result_shape(0);
  return request.builder.emit(std::move(op), {});
}

// ---- size_value

std::vector<TensorType> infer_size_value(const InferRequest& request) {
  const auto& op = std::get<SizeValue>(request.op);
  if (op.dtype == DType::Bool) throw UserError("size_value: found bool, wanted an integer or floating dtype");
  return {{op.dtype, {}, {}}};
}
std::vector<Literal> evaluate_size_value(const EvaluateRequest& request) {
  const auto& op = std::get<SizeValue>(request.op);
  Literal result = Literal::uninitialised(op.dtype, {});
  const int64_t value = op.dim.constant();
  store_elements(op.dtype, result.mutable_data(), 1, &value);
  return {result};
}

// ---- random

void check_key(const Op& op, std::string_view operand, const TensorType& type) {
  if (type.dtype != DType::I64 || type.rank() != 0) throw UserError(fmt::format("{}: {} is {}, wanted i64[]", name(op), operand, text(type)));
}

std::vector<TensorType> infer_random(const InferRequest& request) {
  const auto& op = std::get<Random>(request.op);
  check_key(request.op, "key", request.inputs[0]);
  const TensorType type{op.dtype, op.shape, {}};
  check_floating(name(request.op), type);
  check_sizes(name(request.op), op.shape, request.module);
  if (op.place.global_shape.size() != op.shape.size() || op.place.starts.size() != op.shape.size()) {
    throw UserError(fmt::format("{}: shape {}, global shape {} and starts {} differ in rank", name(request.op), text(op.shape), text(op.place.global_shape),
                                text(op.place.starts)));
  }
  return {type};
}

std::vector<Literal> evaluate_random(const EvaluateRequest& request) {
  const auto& op = std::get<Random>(request.op);
  const auto key = static_cast<uint64_t>(request.inputs[0].integer_at(0));
  const Sizes sizes = sizes_of(request.results[0]);
  const DrawElements elements = draw_elements(op.place);
  Literal result = Literal::uninitialised(op.dtype, sizes);
  const StridedLoops loops = joined_loops(sizes, {elements.strides, row_major_strides(sizes)});
  std::byte* data = result.mutable_data();
  const size_t width = size_bytes(op.dtype), last = loops.sizes.size() - 1;
  for_each_run(loops, [&](const std::vector<int64_t>& offsets) {
    for (int64_t i = 0; i < loops.sizes[last]; ++i) {
      const auto element = static_cast<uint64_t>(elements.origin + offsets[0] + i * loops.strides[0][last]);
      const double value = op.kind == RandomKind::Uniform ? uniform_element(key, element, op.dtype) : normal_element(key, element);
      store_elements(op.dtype, data + static_cast<size_t>(offsets[1] + i * loops.strides[1][last]) * width, 1, &value);
    }
  });
  return {result};
}

std::vector<Value> partition_random(const PartitionRequest& request) {
  Random op = std::get<Random>(request.op);
  for (size_t d = 0; d < op.shape.size(); ++d) op.place.starts[d] = op.place.starts[d] + result_start(request, d);
  op.shape = request.local_result_shape(0);
  return request.builder.emit(std::move(op), request.local_inputs);
}

std::vector<TensorType> infer_fold_in(const InferRequest& request) {
  check_key(request.op, "key", request.inputs[0]);
  check_key(request.op, "operand", request.inputs[1]);
  return {{DType::I64, {}, {}}};
}
std::vector<Literal> evaluate_fold_in(const EvaluateRequest& request) {
  const auto number = [&](size_t i) { return static_cast<uint64_t>(request.inputs[i].integer_at(0)); };
  return {Literal::integer(DType::I64, static_cast<int64_t>(fold_key(number(0), number(1))))};
}

Cost random_cost(const CostRequest& request) { return elementwise_cost(request, 60); }

}  // namespace

OpInfo row_of(OpType<Constant>) {
  OpInfo row;
  row.operands = {0, 0};
  row.infer = infer_constant;
  row.evaluate = evaluate_constant;
  row.element_kind = ElementKind::View;
  row.element = constant_element;
  row.sharding_rule = fill_rule;
  row.partition = partition_constant;
  row.cost = fill_cost;
  row.elementwise = true;  // a scalar one
  row.differentiable = false;
  return row;
}

OpInfo row_of(OpType<Iota>) {
  OpInfo row;
  row.operands = {0, 0};
  row.infer = infer_iota;
  row.evaluate = evaluate_iota;
  row.element_kind = ElementKind::View;
  row.element = iota_element;
  row.sharding_rule = fill_rule;
  row.partition = partition_iota;
  row.cost = fill_cost;
  row.differentiable = false;
  return row;
}

OpInfo row_of(OpType<SizeValue>) {
  OpInfo row;
  row.operands = {0, 0};
  row.infer = infer_size_value;
  row.evaluate = evaluate_size_value;
  row.element_kind = ElementKind::View;
  row.element = size_value_element;
  row.sharding_rule = fill_rule;
  row.cost = fill_cost;
  row.elementwise = true;
  row.differentiable = false;
  return row;
}

OpInfo row_of(OpType<Random>) {
  OpInfo row;
  row.operands = {1, 1};
  row.infer = infer_random;
  row.evaluate = evaluate_random;
  row.element_kind = ElementKind::Pointwise;
  row.element = random_element;
  row.sharding_rule = fill_rule;
  row.partition = partition_random;
  row.cost = random_cost;
  row.differentiable = false;
  return row;
}

OpInfo row_of(OpType<FoldIn>) {
  OpInfo row;
  row.operands = {2, 2};
  row.infer = infer_fold_in;
  row.evaluate = evaluate_fold_in;
  row.element_kind = ElementKind::View;
  row.element = fold_in_element;
  row.sharding_rule = fill_rule;
  row.cost = fill_cost;
  row.differentiable = false;
  return row;
}

}  // namespace stepgraph
