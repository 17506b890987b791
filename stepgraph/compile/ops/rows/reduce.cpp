// SPDX-License-Identifier: Apache-2.0
// Reductions over dims. Accumulation is in f64 (integers: i64, wrapping) in row-major order of the operand, with one rounding at the end.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/functions/scans.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/element_expressions.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

using Gradients = std::vector<std::optional<Value>>;

bool contains(const std::vector<int64_t>& dims, size_t dim) { return std::binary_search(dims.begin(), dims.end(), static_cast<int64_t>(dim)); }

Shape kept_dims(const Shape& shape, const std::vector<int64_t>& reduced) {
  Shape kept;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!contains(reduced, d)) kept.push_back(shape[d]);
  }
  return kept;
}

// ---- types

std::vector<TensorType> infer_reduce(const InferRequest& request) {
  const auto& op = std::get<Reduce>(request.op);
  const TensorType& x = request.inputs[0];
  check_dims(name(request.op), op.dims, x);
  switch (op.kind) {
    case ReduceKind::Sum: case ReduceKind::Product: case ReduceKind::Max: case ReduceKind::Min:
      if (x.dtype == DType::Bool) throw UserError(fmt::format("{}: found {}, wanted numbers (convert first)", name(request.op), text(x)));
      break;
    case ReduceKind::Any: case ReduceKind::All:
      if (x.dtype != DType::Bool) throw UserError(fmt::format("{}: found {}, wanted bool", name(request.op), text(x)));
      break;
  }
  return {{x.dtype, kept_dims(x.shape, op.dims), {}}};
}

// ---- values

struct SumOf {
  static constexpr double identity(double) { return 0; }
  static constexpr int64_t identity(int64_t) { return 0; }
  static double combine(double a, double b) { return a + b; }
  static int64_t combine(int64_t a, int64_t b) { return wrap_add(a, b); }
};
struct ProductOf {
  static constexpr double identity(double) { return 1; }
  static constexpr int64_t identity(int64_t) { return 1; }
  static double combine(double a, double b) { return a * b; }
  static int64_t combine(int64_t a, int64_t b) { return wrap_multiply(a, b); }
};
struct MaxOf {
  static constexpr double identity(double) { return -std::numeric_limits<double>::infinity(); }
  static constexpr int64_t identity(int64_t) { return std::numeric_limits<int64_t>::min(); }
  static double combine(double a, double b) { return a > b || a != a ? a : b; }
  static int64_t combine(int64_t a, int64_t b) { return std::max(a, b); }
};
struct MinOf {
  static constexpr double identity(double) { return std::numeric_limits<double>::infinity(); }
  static constexpr int64_t identity(int64_t) { return std::numeric_limits<int64_t>::max(); }
  static double combine(double a, double b) { return a < b || a != a ? a : b; }
  static int64_t combine(int64_t a, int64_t b) { return std::min(a, b); }
};

/// The lowest or highest number of an integer dtype is the identity of what holds nothing: i64's does not survive narrowing.
int64_t clamped_to(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::I32: return std::clamp<int64_t>(value, INT32_MIN, INT32_MAX);
    case DType::I8: return std::clamp<int64_t>(value, INT8_MIN, INT8_MAX);
    case DType::U8: return std::clamp<int64_t>(value, 0, UINT8_MAX);
    case DType::I64: case DType::F64: case DType::F32: case DType::BF16: case DType::F16: case DType::Bool: return value;
  }
  return value;
}

/// One accumulator a result element; the operand is read once, front to back.
template <class R, class T>
void reduce_as(const Literal& x, const std::vector<int64_t>& dims, Literal& result, bool clamp) {
  std::vector<T> totals(static_cast<size_t>(result.count()), R::identity(T{}));
  // The result's strides over the operand's dims: 0 along a reduced one.
  Sizes result_strides(x.rank(), 0);
  int64_t stride = 1;
  for (size_t d = x.rank(); d-- > 0;) {
    if (contains(dims, d)) continue;
    result_strides[d] = stride;
    stride *= x.sizes()[d];
  }
  const StridedLoops loops = joined_loops(x.sizes(), {row_major_strides(x.sizes()), result_strides});
  const size_t last = loops.sizes.size() - 1;
  const int64_t length = loops.sizes[last];
  const bool reduces_run = loops.strides[1][last] == 0;
  T block[element_block];
  for_each_run(loops, [&](const std::vector<int64_t>& offsets) {
    T* target = totals.data() + offsets[1];
    for (int64_t first = 0; first < length; first += element_block) {
      const int64_t count = std::min(element_block, length - first);
      load_elements(x, offsets[0] + first, count, block);
      if (reduces_run) {
        T total = *target;
        for (int64_t i = 0; i < count; ++i) total = R::combine(total, block[i]);
        *target = total;
      } else {
        for (int64_t i = 0; i < count; ++i) target[first + i] = R::combine(target[first + i], block[i]);
      }
    }
  });
  if constexpr (std::is_same_v<T, int64_t>) {
    if (clamp) {
      for (T& total : totals) total = clamped_to(result.dtype(), total);
    }
  }
  if (!totals.empty()) store_elements(result.dtype(), result.mutable_data(), result.count(), totals.data());
}

template <class R>
void reduce_any(const Literal& x, const std::vector<int64_t>& dims, Literal& result, bool clamp) {
  if (is_floating(x.dtype())) reduce_as<R, double>(x, dims, result, clamp);
  else reduce_as<R, int64_t>(x, dims, result, clamp);
}

std::vector<Literal> evaluate_reduce(const EvaluateRequest& request) {
  const auto& op = std::get<Reduce>(request.op);
  const Literal& x = request.inputs[0];
  if (op.dims.empty()) return {x};
  Literal result = Literal::uninitialised(x.dtype(), sizes_of(request.results[0]));
  switch (op.kind) {
    case ReduceKind::Sum: reduce_any<SumOf>(x, op.dims, result, false); break;
    case ReduceKind::Product: reduce_any<ProductOf>(x, op.dims, result, false); break;
    case ReduceKind::Max: reduce_any<MaxOf>(x, op.dims, result, true); break;
    case ReduceKind::Min: reduce_any<MinOf>(x, op.dims, result, true); break;
    // Of 0 and 1: a sum is not 0 if any is 1 (2^63 elements would not fit), a product is 1 if all are.
    case ReduceKind::Any: reduce_as<SumOf, int64_t>(x, op.dims, result, false); break;
    case ReduceKind::All: reduce_as<ProductOf, int64_t>(x, op.dims, result, false); break;
  }
  return {result};
}

// ---- gradient

/// The reduced value over x's shape again.
Value spread(const Value& reduced, const Value& x, const std::vector<int64_t>& dims) {
  Dims kept;
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (!contains(dims, static_cast<size_t>(d))) kept.push_back(d);
  }
  return dims.empty() ? reduced : broadcast_in_dim(reduced, x.shape(), kept);
}

Value extreme_gradient(const GradientRequest& request, const std::vector<int64_t>& dims) {
  const Value x = request.inputs[0], g = *request.result_gradients[0];
  const Value wins = equal(x, spread(request.results[0], x, dims));
  const Value wide = widened(g);  // 16 bits may not hold the count
  const Value ties = dims.empty() ? convert(wins, wide.dtype()) : sum(convert(wins, wide.dtype()), dims);
  return where(wins, spread(convert(wide / ties, x.dtype()), x, dims), zeros_like(x));
}

Value product_gradient(const GradientRequest& request, const std::vector<int64_t>& dims) {
  const Value x = request.inputs[0], g = *request.result_gradients[0];
  if (dims.empty()) return g;
  // The reduced dims last and joined: then the product of all others is one scan from each side.
  Dims order;
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (!contains(dims, static_cast<size_t>(d))) order.push_back(d);
  }
  const auto kept = static_cast<int64_t>(order.size());
  order.insert(order.end(), dims.begin(), dims.end());
  const Value moved = permute(widened(x), order);
  const Value others = product_of_others(flatten(moved, kept, -1), kept);
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return convert(spread(widened(g), x, dims) * permute(reshape(others, moved.shape()), back), x.dtype());
}

Gradients reduce_gradient(const GradientRequest& request) {
  const auto& op = std::get<Reduce>(request.op);
  if (!is_floating(request.inputs[0].dtype())) return {std::nullopt};
  switch (op.kind) {
    case ReduceKind::Sum: return {spread(*request.result_gradients[0], request.inputs[0], op.dims)};
    case ReduceKind::Product: return {product_gradient(request, op.dims)};
    case ReduceKind::Max: case ReduceKind::Min: return {extreme_gradient(request, op.dims)};
    case ReduceKind::Any: case ReduceKind::All: return {std::nullopt};
  }
  return {std::nullopt};
}

// ---- sharding, cost

/// Reduced dims are Reduction factors: split, they leave results partial.
ShardingRule reduce_rule(const ShardingRequest& request) {
  const auto& op = std::get<Reduce>(request.op);
  ShardingRule rule;
  rule.operands.resize(1), rule.results.resize(1);
  const Shape& shape = request.inputs[0].shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = contains(op.dims, d);
    std::vector<int> factors;
    if (shape[d] != Dim(1)) factors.push_back(add_factor(rule, reduced ? FactorKind::Reduction : FactorKind::Parallel, shape[d], op.kind));
    if (!reduced) rule.results[0].push_back(factors);
    rule.operands[0].push_back(std::move(factors));
  }
  if (op.kind == ReduceKind::Sum) rule.linear_groups = {{0}};
  return rule;
}

Cost reduce_cost(const CostRequest& request) {
  return {element_count(request.inputs[0].shape), bytes_of(request.inputs) + bytes_of(request.results)};
}

// ---- arg_reduce

std::vector<TensorType> infer_arg_reduce(const InferRequest& request) {
  const auto& op = std::get<ArgReduce>(request.op);
  const TensorType& x = request.inputs[0];
  if (x.dtype == DType::Bool) throw UserError(fmt::format("{}: found {}, wanted numbers", name(request.op), text(x)));
  check_dim(name(request.op), op.dim, x);
  if (x.shape[static_cast<size_t>(op.dim)] == Dim(0)) throw UserError(fmt::format("{}: dim {} of {} is empty", name(request.op), op.dim, text(x)));
  return {{DType::I64, kept_dims(x.shape, {op.dim}), {}}};
}

template <class T, class Better>
void arg_reduce_as(const Literal& x, size_t dim, Literal& result, Better better) {
  const int64_t length = x.sizes()[dim], inner = row_major_strides(x.sizes())[dim], slab = length * inner;
  std::vector<T> values(static_cast<size_t>(slab));
  int64_t* indices = result.as_mutable<int64_t>().data();
  for (int64_t first = 0; first < x.count(); first += slab) {
    load_elements(x, first, slab, values.data());
    for (int64_t column = 0; column < inner; ++column) {
      T best = values[static_cast<size_t>(column)];
      int64_t index = 0;
      for (int64_t i = 1; i < length; ++i) {
        const T value = values[static_cast<size_t>(i * inner + column)];
        if (better(value, best)) best = value, index = i;
      }
      *indices++ = index;
    }
  }
}

std::vector<Literal> evaluate_arg_reduce(const EvaluateRequest& request) {
  const auto& op = std::get<ArgReduce>(request.op);
  const Literal& x = request.inputs[0];
  const auto dim = static_cast<size_t>(op.dim);
  Literal result = Literal::uninitialised(DType::I64, sizes_of(request.results[0]));
  if (result.count() == 0) return {result};
  if (x.sizes()[dim] == 0) throw UserError(fmt::format("{}: dim {} is empty", name(request.op), op.dim));
  const bool largest = op.kind == ArgReduceKind::ArgMax;
  if (is_floating(x.dtype())) {
    // The first NaN beats all and is never beaten.
    arg_reduce_as<double>(x, dim, result, [largest](double a, double best) {
      if (best != best) return false;
      return a != a || (largest ? a > best : a < best);
    });
  } else {
    arg_reduce_as<int64_t>(x, dim, result, [largest](int64_t a, int64_t best) { return largest ? a > best : a < best; });
  }
  return {result};
}

ShardingRule arg_reduce_rule(const ShardingRequest& request) {
  const auto dim = static_cast<size_t>(std::get<ArgReduce>(request.op).dim);
  ShardingRule rule;
  rule.operands.resize(1), rule.results.resize(1);
  const Shape& shape = request.inputs[0].shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int> factors;
    if (shape[d] != Dim(1)) factors.push_back(add_factor(rule, d == dim ? FactorKind::Replicate : FactorKind::Parallel, shape[d]));
    if (d != dim) rule.results[0].push_back(factors);
    rule.operands[0].push_back(std::move(factors));
  }
  return rule;
}

}  // namespace

OpInfo row_of(OpType<Reduce>) {
  OpInfo row;
  row.infer = infer_reduce;
  row.evaluate = evaluate_reduce;
  row.element_kind = ElementKind::Reduce;
  row.element = reduce_element;
  row.gradient = reduce_gradient;
  row.sharding_rule = reduce_rule;
  row.cost = reduce_cost;
  return row;
}

OpInfo row_of(OpType<ArgReduce>) {
  OpInfo row;
  row.infer = infer_arg_reduce;
  row.evaluate = evaluate_arg_reduce;
  row.element_kind = ElementKind::Reduce;
  row.element = arg_reduce_element;
  row.sharding_rule = arg_reduce_rule;
  row.cost = reduce_cost;
  row.differentiable = false;
  return row;
}

}  // namespace stepgraph
