// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/known_values.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/element_expressions.h"
#include "stepgraph/compile/ops/rows/rows.h"
#include "stepgraph/compile/ops/rows/rules.h"

namespace stepgraph {
namespace {

// ---- what the four ops share ----

void check_index_dtype(std::string_view op, const TensorType& type) {
  if (!is_integer(type.dtype)) throw UserError(fmt::format("{}: indices are {}, wanted an integer dtype", op, text(type)));
}
void check_numbers(std::string_view op, const TensorType& type) {
  if (type.dtype == DType::Bool) throw UserError(fmt::format("{}: found {}, wanted numbers", op, text(type)));
}

/// The indices, each checked to lie in [0, size).
std::vector<int64_t> checked_indices(std::string_view op, const Literal& indices, int64_t size) {
  std::vector<int64_t> result(static_cast<size_t>(indices.count()));
  load_elements(indices, 0, indices.count(), result.data());
  for (size_t i = 0; i < result.size(); ++i)
    if (result[i] < 0 || result[i] >= size)
      throw UserError(fmt::format("{}: index {} (element {} of the indices) is outside of a dim of size {}", op, result[i], i, size),
                      BadIndex{std::string(op), result[i], size});
  return result;
}

/// Calls `body` with a zero of the type that sums are taken in.
template <class Body>
void with_sum_type(DType dtype, Body body) {
  if (is_floating(dtype))
    body(double{});
  else
    body(int64_t{});
}
void add_to(double& sum, double value) { sum += value; }
void add_to(int64_t& sum, int64_t value) { sum = wrap_add(sum, value); }

/// Where the updates are split, each rank adds its own to a base, and the parts are summed: the base must be in that sum once.
/// Over axes where the base is partial already, its parts are summed anyway.
Value base_once(const PartitionRequest& request, const std::vector<AxisRef>& update_axes) {
  const Value base = request.local_inputs[0];
  if (is_zero(base.builder->graph(), base.id)) return base;
  const auto& sharding = request.inputs[0].sharding;
  Dim place = 0;
  for (const AxisRef& axis : update_axes) {
    if (!sharding || !is_partial_over(sharding->partial, axis)) place = place + axis_coordinate(axis, request.mesh);
  }
  if (place == Dim(0)) return base;
  const Value here = equal(size_value(request.builder, DType::I64, place), 0.0), zeros = zeros_like(base);
  return where(here, base, zeros);
}

Cost indexed_cost(const CostRequest& request) { return {0, bytes_of(request.inputs.last(request.inputs.size() - 1)) + bytes_of(request.results) * 2}; }
Cost add_cost(const CostRequest& request) { return {element_count(request.inputs[2].shape), bytes_of(request.inputs) + bytes_of(request.results)}; }

std::vector<int> factor_of(ShardingRule& rule, FactorKind kind, const Dim& size) {
  return size == Dim(1) ? std::vector<int>{} : std::vector<int>{add_factor(rule, kind, size)};
}

// ---- index_select, index_add ----

/// x's shape with `dim` replaced by the indices' shape.
Shape selected_shape(const Shape& x, int64_t dim, const Shape& indices) {
  Shape shape(x.begin(), x.begin() + dim);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), x.begin() + dim + 1, x.end());
  return shape;
}

std::vector<TensorType> infer_index_select(const InferRequest& request) {
  const int64_t dim = std::get<IndexSelect>(request.op).dim;
  check_dim("index_select", dim, request.inputs[0]);
  check_index_dtype("index_select", request.inputs[1]);
  return {{request.inputs[0].dtype, selected_shape(request.inputs[0].shape, dim, request.inputs[1].shape), {}}};
}

std::vector<Literal> evaluate_index_select(const EvaluateRequest& request) {
  const Literal& x = request.inputs[0];
  const Blocks blocks = blocks_of(x.sizes(), std::get<IndexSelect>(request.op).dim);
  const std::vector<int64_t> indices = checked_indices("index_select", request.inputs[1], blocks.size);
  Literal result = Literal::uninitialised(x.dtype(), sizes_of(request.results[0]));
  SG_CHECK(result.count() == blocks.outer * static_cast<int64_t>(indices.size()) * blocks.inner, "index_select sizes");
  if (result.count() == 0) return {result};
  const size_t row = static_cast<size_t>(blocks.inner) * size_bytes(x.dtype());
  std::byte* out = result.mutable_data();
  for (int64_t o = 0; o < blocks.outer; ++o) {
    for (const int64_t index : indices) {
      std::memcpy(out, x.data() + static_cast<size_t>(o * blocks.size + index) * row, row);
      out += row;
    }
  }
  return {result};
}

std::vector<std::optional<Value>> gradient_index_select(const GradientRequest& request) {
  const int64_t dim = std::get<IndexSelect>(request.op).dim;
  return {index_add(zeros_like(request.inputs[0]), dim, request.inputs[1], *request.result_gradients[0]), std::nullopt};
}

/// The rule of index_select, whose operands are (x, indices) and result the selection; index_add turns it around.
struct SelectRule {
  ShardingRule rule;
  DimFactors x, indices, selected;
};
SelectRule select_rule(const Shape& x, int64_t dim, const Shape& indices, FactorKind index_kind) {
  SelectRule result;
  for (size_t d = 0; d < x.size(); ++d) {
    result.x.emplace_back();
    if (static_cast<int64_t>(d) != dim) {
      result.x.back() = factor_of(result.rule, FactorKind::Parallel, x[d]);
      result.selected.push_back(result.x.back());
      continue;
    }
    for (const Dim& size : indices) {
      result.indices.push_back(factor_of(result.rule, index_kind, size));
      result.selected.push_back(result.indices.back());
    }
  }
  return result;
}
ShardingRule rule_index_select(const ShardingRequest& request) {
  SelectRule parts = select_rule(request.inputs[0].shape, std::get<IndexSelect>(request.op).dim, request.inputs[1].shape, FactorKind::Parallel);
  parts.rule.operands = {parts.x, parts.indices};
  parts.rule.results = {parts.selected};
  parts.rule.linear_groups = {{0}};
  return parts.rule;
}

std::vector<TensorType> infer_index_add(const InferRequest& request) {
  const int64_t dim = std::get<IndexAdd>(request.op).dim;
  const TensorType &base = request.inputs[0], &updates = request.inputs[2];
  check_dim("index_add", dim, base);
  check_numbers("index_add", base);
  check_index_dtype("index_add", request.inputs[1]);
  check_same_dtype("index_add", base, updates);
  const Shape wanted = selected_shape(base.shape, dim, request.inputs[1].shape);
  if (!same_shape(request.module, updates.shape, wanted))
    throw UserError(fmt::format("index_add: updates are {}, wanted {} for base {} and indices {}{}", text(updates), text(wanted), text(base),
                                text(request.inputs[1]), ranges_of(request.module, updates.shape, wanted)));
  return {{base.dtype, base.shape, {}}};
}

/// Positions of the indices, grouped by index and in order within a group.
std::vector<size_t> grouped_positions(const std::vector<int64_t>& indices) {
  std::vector<size_t> order(indices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return indices[a] < indices[b]; });
  return order;
}

std::vector<Literal> evaluate_index_add(const EvaluateRequest& request) {
  const Literal &base = request.inputs[0], &updates = request.inputs[2];
  const Blocks blocks = blocks_of(base.sizes(), std::get<IndexAdd>(request.op).dim);
  const std::vector<int64_t> indices = checked_indices("index_add", request.inputs[1], blocks.size);
  const auto count = static_cast<int64_t>(indices.size());
  SG_CHECK(updates.count() == blocks.outer * count * blocks.inner, "index_add sizes");
  if (updates.count() == 0) return {base};
  Literal result = Literal::uninitialised(base.dtype(), base.sizes());
  std::byte* out = result.mutable_data();
  std::memcpy(out, base.data(), base.byte_count());
  const std::vector<size_t> order = grouped_positions(indices);
  const size_t unit = size_bytes(base.dtype());
  with_sum_type(base.dtype(), [&](auto zero) {
    std::vector<decltype(zero)> sums(static_cast<size_t>(blocks.inner)), update(static_cast<size_t>(blocks.inner));
    for (int64_t o = 0; o < blocks.outer; ++o) {
      for (size_t p = 0; p < order.size();) {
        const int64_t index = indices[order[p]], row = (o * blocks.size + index) * blocks.inner;
        load_elements(base, row, blocks.inner, sums.data());
        for (; p < order.size() && indices[order[p]] == index; ++p) {
          load_elements(updates, (o * count + static_cast<int64_t>(order[p])) * blocks.inner, blocks.inner, update.data());
          for (size_t i = 0; i < sums.size(); ++i) add_to(sums[i], update[i]);
        }
        store_elements(base.dtype(), out + static_cast<size_t>(row) * unit, blocks.inner, sums.data());
      }
    }
  });
  return {result};
}

std::vector<std::optional<Value>> gradient_index_add(const GradientRequest& request) {
  const Value g = *request.result_gradients[0];
  std::vector<std::optional<Value>> result = {g, std::nullopt, std::nullopt};
  if (request.needed[2]) result[2] = index_select(g, std::get<IndexAdd>(request.op).dim, request.inputs[1]);
  return result;
}

ShardingRule rule_index_add(const ShardingRequest& request) {
  SelectRule parts = select_rule(request.inputs[0].shape, std::get<IndexAdd>(request.op).dim, request.inputs[1].shape, FactorKind::Reduction);
  parts.rule.operands = {parts.x, parts.indices, parts.selected};
  parts.rule.results = {parts.x};
  parts.rule.linear_groups = {{0, 2}};
  return parts.rule;
}

std::vector<Value> partition_index_add(const PartitionRequest& request) {
  std::vector<AxisRef> axes;
  if (request.inputs[1].sharding)
    for (const DimSharding& dim : request.inputs[1].sharding->dims) axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
  return request.builder.emit(request.op, {base_once(request, axes), request.local_inputs[1], request.local_inputs[2]});
}

// ---- gather, scatter_add ----

/// All sizes but that of `dim` must be equal.
void check_aligned(std::string_view op, const InferRequest& request, int64_t dim, const TensorType& x, const TensorType& index) {
  bool fits = x.rank() == index.rank();
  for (size_t d = 0; fits && d < x.rank(); ++d) fits = static_cast<int64_t>(d) == dim || same_size(request.module, x.shape[d], index.shape[d]);
  if (fits) return;
  throw UserError(
      fmt::format("{}: {} and indices {} may differ in dim {} only{}", op, text(x), text(index), dim, ranges_of(request.module, x.shape, index.shape)));
}

std::vector<TensorType> infer_gather(const InferRequest& request) {
  const int64_t dim = std::get<Gather>(request.op).dim;
  check_dim("gather", dim, request.inputs[0]);
  check_index_dtype("gather", request.inputs[1]);
  check_aligned("gather", request, dim, request.inputs[0], request.inputs[1]);
  return {{request.inputs[0].dtype, request.inputs[1].shape, {}}};
}

template <class T>
void gather_elements(const std::byte* x, std::byte* result, const Blocks& from, const std::vector<int64_t>& indices) {
  const auto* source = reinterpret_cast<const T*>(x);
  auto* target = reinterpret_cast<T*>(result);
  const size_t block = from.outer == 0 ? 0 : indices.size() / static_cast<size_t>(from.outer), inner = static_cast<size_t>(from.inner);
  for (size_t e = 0; e < indices.size(); ++e)
    target[e] = source[(e / block * static_cast<size_t>(from.size) + static_cast<size_t>(indices[e])) * inner + e % inner];
}

std::vector<Literal> evaluate_gather(const EvaluateRequest& request) {
  const Literal &x = request.inputs[0], &index = request.inputs[1];
  const int64_t dim = std::get<Gather>(request.op).dim;
  const Blocks from = blocks_of(x.sizes(), dim), to = blocks_of(index.sizes(), dim);
  SG_CHECK(from.outer == to.outer && from.inner == to.inner, "gather sizes");
  const std::vector<int64_t> indices = checked_indices("gather", index, from.size);
  Literal result = Literal::uninitialised(x.dtype(), index.sizes());
  if (indices.empty()) return {result};
  switch (size_bytes(x.dtype())) {
    case 1: gather_elements<uint8_t>(x.data(), result.mutable_data(), from, indices); break;
    case 2: gather_elements<uint16_t>(x.data(), result.mutable_data(), from, indices); break;
    case 4: gather_elements<uint32_t>(x.data(), result.mutable_data(), from, indices); break;
    default: gather_elements<uint64_t>(x.data(), result.mutable_data(), from, indices); break;
  }
  return {result};
}

std::vector<std::optional<Value>> gradient_gather(const GradientRequest& request) {
  const int64_t dim = std::get<Gather>(request.op).dim;
  return {scatter_add(zeros_like(request.inputs[0]), dim, request.inputs[1], *request.result_gradients[0]), std::nullopt};
}

/// Factors of x and of index; `dim` of x must be whole.
std::pair<DimFactors, DimFactors> aligned_factors(ShardingRule& rule, const Shape& x, const Shape& index, int64_t dim, FactorKind index_kind) {
  DimFactors first(x.size()), second(x.size());
  for (size_t d = 0; d < x.size(); ++d) {
    if (static_cast<int64_t>(d) == dim)
      second[d] = factor_of(rule, index_kind, index[d]);
    else
      first[d] = second[d] = factor_of(rule, FactorKind::Parallel, x[d]);
  }
  return {first, second};
}
ShardingRule rule_gather(const ShardingRequest& request) {
  ShardingRule rule;
  const auto [x, index] = aligned_factors(rule, request.inputs[0].shape, request.inputs[1].shape, std::get<Gather>(request.op).dim, FactorKind::Parallel);
  rule.operands = {x, index};
  rule.results = {index};
  rule.linear_groups = {{0}};
  return rule;
}

std::vector<TensorType> infer_scatter_add(const InferRequest& request) {
  const int64_t dim = std::get<ScatterAdd>(request.op).dim;
  const TensorType &base = request.inputs[0], &index = request.inputs[1], &updates = request.inputs[2];
  check_dim("scatter_add", dim, base);
  check_numbers("scatter_add", base);
  check_index_dtype("scatter_add", index);
  check_same_dtype("scatter_add", base, updates);
  check_aligned("scatter_add", request, dim, base, index);
  check_same_shape("scatter_add: indices and updates", request, index, updates);
  return {{base.dtype, base.shape, {}}};
}

std::vector<Literal> evaluate_scatter_add(const EvaluateRequest& request) {
  const Literal &base = request.inputs[0], &updates = request.inputs[2];
  const int64_t dim = std::get<ScatterAdd>(request.op).dim;
  const Blocks to = blocks_of(base.sizes(), dim), from = blocks_of(updates.sizes(), dim);
  SG_CHECK(from.outer == to.outer && from.inner == to.inner && updates.sizes() == request.inputs[1].sizes(), "scatter_add sizes");
  const std::vector<int64_t> indices = checked_indices("scatter_add", request.inputs[1], to.size);
  if (updates.count() == 0 || base.count() == 0) return {base};
  Literal result = Literal::uninitialised(base.dtype(), base.sizes());
  std::byte* out = result.mutable_data();
  const int64_t block = to.size * to.inner, update_block = from.size * from.inner;
  with_sum_type(base.dtype(), [&](auto zero) {
    std::vector<decltype(zero)> sums(static_cast<size_t>(block)), update(static_cast<size_t>(update_block));
    for (int64_t o = 0; o < to.outer; ++o) {
      load_elements(base, o * block, block, sums.data());
      load_elements(updates, o * update_block, update_block, update.data());
      for (int64_t e = 0; e < update_block; ++e)
        add_to(sums[static_cast<size_t>(indices[static_cast<size_t>(o * update_block + e)] * to.inner + e % to.inner)], update[static_cast<size_t>(e)]);
      store_elements(base.dtype(), out + static_cast<size_t>(o * block) * size_bytes(base.dtype()), block, sums.data());
    }
  });
  return {result};
}

std::vector<std::optional<Value>> gradient_scatter_add(const GradientRequest& request) {
  const Value g = *request.result_gradients[0];
  std::vector<std::optional<Value>> result = {g, std::nullopt, std::nullopt};
  if (request.needed[2]) result[2] = gather(g, std::get<ScatterAdd>(request.op).dim, request.inputs[1]);
  return result;
}

/// Base, index and updates of a scatter along `dim`.
ShardingRule scatter_rule(const ShardingRequest& request, int64_t dim, FactorKind kind) {
  ShardingRule rule;
  const auto [base, index] = aligned_factors(rule, request.inputs[0].shape, request.inputs[1].shape, dim, kind);
  rule.operands = {base, index, index};
  rule.results = {base};
  return rule;
}
ShardingRule rule_scatter_add(const ShardingRequest& request) {
  ShardingRule rule = scatter_rule(request, std::get<ScatterAdd>(request.op).dim, FactorKind::Reduction);
  rule.linear_groups = {{0, 2}};
  return rule;
}

std::vector<Value> partition_scatter_add(const PartitionRequest& request) {
  std::vector<AxisRef> axes;
  if (request.inputs[1].sharding) axes = request.inputs[1].sharding->dims[static_cast<size_t>(std::get<ScatterAdd>(request.op).dim)].axes;
  return request.builder.emit(request.op, {base_once(request, axes), request.local_inputs[1], request.local_inputs[2]});
}

// ---- scatter_reduce ----

std::vector<TensorType> infer_scatter_reduce(const InferRequest& request) {
  const int64_t dim = std::get<ScatterReduce>(request.op).dim;
  const std::string op(name(request.op));
  const TensorType &base = request.inputs[0], &index = request.inputs[1], &updates = request.inputs[2];
  check_dim(op, dim, base);
  check_numbers(op, base);
  check_index_dtype(op, index);
  check_same_dtype(op, base, updates);
  check_aligned(op, request, dim, base, index);
  check_same_shape(op + ": indices and updates", request, index, updates);
  return {{base.dtype, base.shape, {}}};
}

void reduce_into(ScatterReduceKind kind, double& held, double value) {
  switch (kind) {
    case ScatterReduceKind::Product: held *= value; break;
    case ScatterReduceKind::Max: held = held > value || held != held ? held : value; break;
    case ScatterReduceKind::Min: held = held < value || held != held ? held : value; break;
  }
}
void reduce_into(ScatterReduceKind kind, int64_t& held, int64_t value) {
  switch (kind) {
    case ScatterReduceKind::Product: held = wrap_multiply(held, value); break;
    case ScatterReduceKind::Max: held = std::max(held, value); break;
    case ScatterReduceKind::Min: held = std::min(held, value); break;
  }
}

std::vector<Literal> evaluate_scatter_reduce(const EvaluateRequest& request) {
  const Literal &base = request.inputs[0], &updates = request.inputs[2];
  const auto [kind, dim] = std::get<ScatterReduce>(request.op);
  const Blocks to = blocks_of(base.sizes(), dim), from = blocks_of(updates.sizes(), dim);
  SG_CHECK(from.outer == to.outer && from.inner == to.inner && updates.sizes() == request.inputs[1].sizes(), "scatter_reduce sizes");
  const std::vector<int64_t> indices = checked_indices(name(request.op), request.inputs[1], to.size);
  if (updates.count() == 0 || base.count() == 0) return {base};
  Literal result = Literal::uninitialised(base.dtype(), base.sizes());
  with_sum_type(base.dtype(), [&](auto zero) {
    std::vector<decltype(zero)> held(static_cast<size_t>(base.count())), update(static_cast<size_t>(updates.count()));
    load_elements(base, 0, base.count(), held.data());
    load_elements(updates, 0, updates.count(), update.data());
    const int64_t update_block = from.size * from.inner;
    for (int64_t e = 0; e < updates.count(); ++e) {
      const int64_t place = (e / update_block * to.size + indices[static_cast<size_t>(e)]) * to.inner + e % to.inner;
      reduce_into(kind, held[static_cast<size_t>(place)], update[static_cast<size_t>(e)]);
    }
    store_elements(base.dtype(), result.mutable_data(), base.count(), held.data());
  });
  return {result};
}

/// What each element is multiplied by: the product of the others of its place, of which zeros are counted instead of divided by. (So the gradient of this
/// gradient is right only where there are no zeros.)
std::vector<std::optional<Value>> scatter_product_gradient(const GradientRequest& request) {
  const Value base = request.inputs[0], index = request.inputs[1], updates = request.inputs[2], g = *request.result_gradients[0];
  const int64_t dim = std::get<ScatterReduce>(request.op).dim;
  const Value zero_base = equal(base, 0.0), zero_updates = equal(updates, 0.0);
  const Value kept_base = where(zero_base, ones_like(base), base), kept_updates = where(zero_updates, ones_like(updates), updates);
  const Value zeros = scatter_add(convert(zero_base, DType::I64), dim, index, convert(zero_updates, DType::I64));
  const Value product = base.builder->emit_one(request.op, {kept_base, index, kept_updates});
  const auto others = [](const Value& is_zero, const Value& kept, const Value& count, const Value& all) {
    const Value alone = equal(convert(is_zero, DType::I64), count);  // no zero among the others
    return where(alone, all / kept, zeros_like(all));
  };
  std::vector<std::optional<Value>> result(3);
  if (request.needed[0]) result[0] = g * others(zero_base, kept_base, zeros, product);
  if (request.needed[2])
    result[2] = gather(g, dim, index) * others(zero_updates, kept_updates, gather(zeros, dim, index), gather(product, dim, index));
  return result;
}

std::vector<std::optional<Value>> gradient_scatter_reduce(const GradientRequest& request) {
  const auto [kind, dim] = std::get<ScatterReduce>(request.op);
  const Value base = request.inputs[0], index = request.inputs[1], updates = request.inputs[2], g = *request.result_gradients[0];
  if (!is_floating(base.dtype())) return std::vector<std::optional<Value>>(3);
  if (kind == ScatterReduceKind::Product) return scatter_product_gradient(request);
  const auto takes = [](const Value& x, const Value& extreme) { return logical_or(equal(x, extreme), is_nan(x)); };
  const Value base_takes = takes(base, request.results[0]), updates_take = takes(updates, gather(request.results[0], dim, index));
  const Value count = scatter_add(convert(base_takes, g.dtype()), dim, index, convert(updates_take, g.dtype()));
  const Value share = g / count;  // each place is held by at least one
  std::vector<std::optional<Value>> result(3);
  if (request.needed[0]) result[0] = where(base_takes, share, zeros_like(share));
  if (request.needed[2]) {
    const Value shares = gather(share, dim, index);
    result[2] = where(updates_take, shares, zeros_like(shares));
  }
  return result;
}

ShardingRule rule_scatter_reduce(const ShardingRequest& request) {
  return scatter_rule(request, std::get<ScatterReduce>(request.op).dim, FactorKind::Replicate);
}

}  // namespace

OpInfo row_of(OpType<IndexSelect>) {
  OpInfo info;
  info.operands = {2, 2};
  info.infer = infer_index_select;
  info.evaluate = evaluate_index_select;
  info.element_kind = ElementKind::Pointwise;
  info.element = index_select_element;
  info.gradient = gradient_index_select;
  info.sharding_rule = rule_index_select;
  info.cost = indexed_cost;
  return info;
}

OpInfo row_of(OpType<IndexAdd>) {
  OpInfo info;
  info.operands = {3, 3};
  info.infer = infer_index_add;
  info.evaluate = evaluate_index_add;
  info.gradient = gradient_index_add;
  info.sharding_rule = rule_index_add;
  info.partition = partition_index_add;
  info.cost = add_cost;
  return info;
}

OpInfo row_of(OpType<Gather>) {
  OpInfo info;
  info.operands = {2, 2};
  info.infer = infer_gather;
  info.evaluate = evaluate_gather;
  info.element_kind = ElementKind::Pointwise;
  info.element = gather_element;
  info.gradient = gradient_gather;
  info.sharding_rule = rule_gather;
  info.cost = indexed_cost;
  return info;
}

OpInfo row_of(OpType<ScatterAdd>) {
  OpInfo info;
  info.operands = {3, 3};
  info.infer = infer_scatter_add;
  info.evaluate = evaluate_scatter_add;
  info.gradient = gradient_scatter_add;
  info.sharding_rule = rule_scatter_add;
  info.partition = partition_scatter_add;
  info.cost = add_cost;
  return info;
}

OpInfo row_of(OpType<ScatterReduce>) {
  OpInfo info;
  info.operands = {3, 3};
  info.infer = infer_scatter_reduce;
  info.evaluate = evaluate_scatter_reduce;
  info.gradient = gradient_scatter_reduce;
  info.sharding_rule = rule_scatter_reduce;
  info.cost = add_cost;
  return info;
}

}  // namespace stepgraph
