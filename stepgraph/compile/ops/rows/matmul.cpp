// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/kernels/matmul.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

/// The dims of an operand that are neither batch nor contracted, ascending.
Dims free_dims(size_t rank, const Dims& batch, const Dims& contract) {
  Dims result;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d)
    if (std::count(batch.begin(), batch.end(), d) + std::count(contract.begin(), contract.end(), d) == 0) result.push_back(d);
  return result;
}

void check_side(std::string_view side, const TensorType& type, const Dims& batch, const Dims& contract) {
  std::vector<bool> seen(type.rank(), false);
  for (const Dims* dims : {&batch, &contract}) {
    for (const int64_t dim : *dims) {
      check_dim("matmul", dim, type);
      if (seen[static_cast<size_t>(dim)]) throw UserError(fmt::format("matmul: dim {} of {} {} is named twice", dim, side, text(type)));
      seen[static_cast<size_t>(dim)] = true;
    }
  }
}

void check_pairs(std::string_view kind, const InferRequest& request, const Dims& lhs, const Dims& rhs) {
  const TensorType &a = request.inputs[0], &b = request.inputs[1];
  if (lhs.size() != rhs.size()) throw UserError(fmt::format("matmul: {} {} dims of {}, but {} of {}", lhs.size(), kind, text(a), rhs.size(), text(b)));
  for (size_t i = 0; i < lhs.size(); ++i) {
    const Dim &x = a.shape[static_cast<size_t>(lhs[i])], &y = b.shape[static_cast<size_t>(rhs[i])];
    if (!same_size(request.module, x, y))
      throw UserError(
          fmt::format("matmul: {} dims differ, {} and {}, in {} and {}{}", kind, x.text(), y.text(), text(a), text(b), ranges_of(request.module, {x}, {y})));
  }
}

std::vector<TensorType> matmul_types(const InferRequest& request) {
  const auto& op = std::get<MatMul>(request.op);
  const TensorType &a = request.inputs[0], &b = request.inputs[1];
  check_same_dtype("matmul", a, b);
  if (a.dtype == DType::Bool) throw UserError(fmt::format("matmul: found {}, wanted numbers", text(a)));
  if (op.result_dtype && *op.result_dtype != a.dtype && !(is_floating(*op.result_dtype) && is_floating(a.dtype)))
    throw UserError(fmt::format("matmul: found a result dtype of {} for {}, wanted {}", name(*op.result_dtype), text(a),
                                is_floating(a.dtype) ? "a floating one" : std::string(name(a.dtype))));
  check_side("the left side", a, op.lhs_batch, op.lhs_contract);
  check_side("the right side", b, op.rhs_batch, op.rhs_contract);
  check_pairs("batch", request, op.lhs_batch, op.rhs_batch);
  check_pairs("inner", request, op.lhs_contract, op.rhs_contract);
  TensorType result{op.result_dtype.value_or(a.dtype), {}, {}};
  for (const int64_t d : op.lhs_batch) result.shape.push_back(a.shape[static_cast<size_t>(d)]);
  for (const int64_t d : free_dims(a.rank(), op.lhs_batch, op.lhs_contract)) result.shape.push_back(a.shape[static_cast<size_t>(d)]);
  for (const int64_t d : free_dims(b.rank(), op.rhs_batch, op.rhs_contract)) result.shape.push_back(b.shape[static_cast<size_t>(d)]);
  return {result};
}

/// Element offsets of all indices over `dims`, the first dim slowest.
std::vector<int64_t> offsets(const Literal& value, const Dims& dims) {
  const Sizes strides = row_major_strides(value.sizes());
  std::vector<int64_t> result = {0};
  for (const int64_t dim : dims) {
    const auto d = static_cast<size_t>(dim);
    std::vector<int64_t> next;
    next.reserve(result.size() * static_cast<size_t>(value.sizes()[d]));
    for (const int64_t offset : result)
      for (int64_t i = 0; i < value.sizes()[d]; ++i) next.push_back(offset + i * strides[d]);
    result = std::move(next);
  }
  return result;
}

std::vector<Literal> evaluate_matmul(const EvaluateRequest& request) {
  const auto& op = std::get<MatMul>(request.op);
  const Literal &a = request.inputs[0], &b = request.inputs[1];
  for (const auto& [lhs, rhs] : {std::pair(&op.lhs_batch, &op.rhs_batch), std::pair(&op.lhs_contract, &op.rhs_contract)}) {
    for (size_t i = 0; i < lhs->size(); ++i) {
      const int64_t x = a.sizes()[static_cast<size_t>((*lhs)[i])], y = b.sizes()[static_cast<size_t>((*rhs)[i])];
      if (x != y) throw UserError(fmt::format("matmul: sizes differ, {} and {}", x, y));
    }
  }
  const std::vector<int64_t> rows = offsets(a, free_dims(a.rank(), op.lhs_batch, op.lhs_contract)), a_inner = offsets(a, op.lhs_contract);
  const std::vector<int64_t> columns = offsets(b, free_dims(b.rank(), op.rhs_batch, op.rhs_contract)), b_inner = offsets(b, op.rhs_contract);
  const std::vector<int64_t> a_batch = offsets(a, op.lhs_batch), b_batch = offsets(b, op.rhs_batch);
  const DType dtype = op.result_dtype.value_or(a.dtype());
  if (a_inner.empty()) return {Literal(dtype, sizes_of(request.results[0]))};  // sums of nothing
  Literal result = Literal::uninitialised(dtype, sizes_of(request.results[0]));
  if (result.count() == 0) return {result};
  const size_t unit = size_bytes(a.dtype()), step = rows.size() * columns.size() * size_bytes(dtype);
  std::byte* out = result.mutable_data();
  MatMulSpace space;
  for (size_t i = 0; i < a_batch.size(); ++i) {
    const MatrixView lhs{a.data() + static_cast<size_t>(a_batch[i]) * unit, a.dtype(), &rows, &a_inner};
    const MatrixView rhs{b.data() + static_cast<size_t>(b_batch[i]) * unit, b.dtype(), &b_inner, &columns};
    multiply(lhs, rhs, out + i * step, dtype, space);
  }
  return {result};
}

Dims range(int64_t first, size_t count) {
  Dims result;
  for (size_t i = 0; i < count; ++i) result.push_back(first + static_cast<int64_t>(i));
  return result;
}
Dims sorted(Dims dims) {
  std::sort(dims.begin(), dims.end());
  return dims;
}
/// Brings a product with dims in the order `have` (dims of the operand whose gradient it is) back to the operand's order.
Value to_operand_order(Value product, const Dims& have) {
  Dims permutation(have.size());
  for (size_t i = 0; i < have.size(); ++i) permutation[static_cast<size_t>(have[i])] = static_cast<int64_t>(i);
  return permute(product, permutation);
}
Dims joined(std::initializer_list<Dims> parts) {
  Dims result;
  for (const Dims& part : parts) result.insert(result.end(), part.begin(), part.end());
  return result;
}

/// The dims of one operand, contracted, which stand in the product in ascending order: their names on the other side.
Dims partners(const Dims& of, const Dims& other) {
  const Dims order = sorted(of);
  Dims result;
  for (const int64_t dim : order) result.push_back(other[static_cast<size_t>(std::find(of.begin(), of.end(), dim) - of.begin())]);
  return result;
}

/// What x was widened from, if that has this dtype: a product of narrow operands gives the same numbers at less cost.
Value before_widening(const Value& x, DType dtype) {
  const Graph& graph = x.builder->graph();
  const int32_t node = graph.values[static_cast<size_t>(x.id.index)].node;
  if (node < 0 || !std::holds_alternative<Convert>(graph.nodes[static_cast<size_t>(node)].op)) return x;
  const Value from = x.builder->value(graph.nodes[static_cast<size_t>(node)].inputs[0]);
  return from.dtype() == dtype && promote(dtype, x.dtype()) == x.dtype() ? from : x;
}

/// A product of the result's gradient and the other operand, rounded once to the operand's dtype.
Value gradient_product(MatMul op, Value lhs, Value rhs, DType dtype) {
  const DType wide = promote(lhs.dtype(), rhs.dtype());
  if (wide != dtype) op.result_dtype = dtype;
  return lhs.builder->emit_one(std::move(op), {convert(lhs, wide, false), convert(rhs, wide, false)});
}

std::vector<std::optional<Value>> matmul_gradient(const GradientRequest& request) {
  const auto& op = std::get<MatMul>(request.op);
  const Value a = request.inputs[0], b = request.inputs[1], g = before_widening(*request.result_gradients[0], a.dtype());
  const Dims a_free = free_dims(static_cast<size_t>(a.rank()), op.lhs_batch, op.lhs_contract);
  const Dims b_free = free_dims(static_cast<size_t>(b.rank()), op.rhs_batch, op.rhs_contract);
  const Dims batch = range(0, op.lhs_batch.size());
  const Dims g_rows = range(static_cast<int64_t>(batch.size()), a_free.size());
  const Dims g_columns = range(static_cast<int64_t>(batch.size() + a_free.size()), b_free.size());
  std::vector<std::optional<Value>> result(2);
  if (request.needed[0]) {
    // g · b over b's free dims: batch, a's free dims, then b's inner dims as they stand in b.
    const Value product = gradient_product({batch, op.rhs_batch, g_columns, b_free}, g, b, a.dtype());
    result[0] = to_operand_order(product, joined({op.lhs_batch, a_free, partners(op.rhs_contract, op.lhs_contract)}));
  }
  if (request.needed[1]) {
    const Value product = gradient_product({op.lhs_batch, batch, a_free, g_rows}, a, g, b.dtype());
    result[1] = to_operand_order(product, joined({op.rhs_batch, partners(op.lhs_contract, op.rhs_contract), b_free}));
  }
  return result;
}

ShardingRule matmul_sharding_rule(const ShardingRequest& request) {
  const auto& op = std::get<MatMul>(request.op);
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape;
  ShardingRule rule;
  DimFactors lhs(a.size()), rhs(b.size()), result;
  const auto factor = [&](FactorKind kind, const Dim& size) { return size == Dim(1) ? std::vector<int>{} : std::vector<int>{add_factor(rule, kind, size)}; };
  for (size_t i = 0; i < op.lhs_batch.size(); ++i) {
    const auto d = static_cast<size_t>(op.lhs_batch[i]);
    result.push_back(factor(FactorKind::Parallel, a[d]));
    lhs[d] = rhs[static_cast<size_t>(op.rhs_batch[i])] = result.back();
  }
  for (const int64_t d : free_dims(a.size(), op.lhs_batch, op.lhs_contract))
    result.push_back(lhs[static_cast<size_t>(d)] = factor(FactorKind::Parallel, a[static_cast<size_t>(d)]));
  for (const int64_t d : free_dims(b.size(), op.rhs_batch, op.rhs_contract))
    result.push_back(rhs[static_cast<size_t>(d)] = factor(FactorKind::Parallel, b[static_cast<size_t>(d)]));
  for (size_t i = 0; i < op.lhs_contract.size(); ++i) {
    const auto d = static_cast<size_t>(op.lhs_contract[i]);
    lhs[d] = rhs[static_cast<size_t>(op.rhs_contract[i])] = factor(FactorKind::Reduction, a[d]);
  }
  rule.operands = {lhs, rhs};
  rule.results = {result};
  rule.linear_groups = {{0}, {1}};
  return rule;
}

Cost matmul_cost(const CostRequest& request) {
  const auto& op = std::get<MatMul>(request.op);
  Dim products = element_count(request.results[0].shape);
  for (const int64_t d : op.lhs_contract) products = products * request.inputs[0].shape[static_cast<size_t>(d)];
  return {products * 2, bytes_of(request.inputs) + bytes_of(request.results)};
}

}  // namespace

OpInfo row_of(OpType<MatMul>) {
  OpInfo info;
  info.operands = {2, 2};
  info.infer = matmul_types;
  info.evaluate = evaluate_matmul;
  info.gradient = matmul_gradient;
  info.sharding_rule = matmul_sharding_rule;
  info.cost = matmul_cost;
  return info;
}

}  // namespace stepgraph
