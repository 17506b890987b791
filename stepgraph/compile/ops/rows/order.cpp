// SPDX-License-Identifier: Apache-2.0
// Rows about order: argsort, and the positions of a scatter.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/core.h>

#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

/// All dims are Parallel but `dim`, which stays whole.
ShardingRule all_but_dim(const ShardingRequest& request, int64_t dim) {
  ShardingRule rule;
  DimFactors from(request.inputs[0].rank()), to(request.results[0].rank());
  for (size_t d = 0; d < from.size(); ++d)
    if (static_cast<int64_t>(d) != dim) from[d] = to[d] = {add_factor(rule, FactorKind::Parallel, request.inputs[0].shape[d])};
  rule.operands = {from};
  rule.results = {to};
  return rule;
}

std::vector<TensorType> infer_argsort(const InferRequest& request) {
  check_dim("argsort", std::get<ArgSort>(request.op).dim, request.inputs[0]);
  return {{DType::I64, request.inputs[0].shape, {}}};
}

template <class T>
void sort_lines(const Literal& x, const Blocks& blocks, bool descending, int64_t* result) {
  std::vector<T> values(static_cast<size_t>(x.count()));
  load_elements(x, 0, x.count(), values.data());
  std::vector<int64_t> order(static_cast<size_t>(blocks.size));
  for (int64_t o = 0; o < blocks.outer; ++o)
    for (int64_t i = 0; i < blocks.inner; ++i) {
      auto value = [&](int64_t k) { return values[static_cast<size_t>((o * blocks.size + k) * blocks.inner + i)]; };
      auto before = [&](int64_t a, int64_t b) {
        if constexpr (std::is_same_v<T, double>) {
          const bool nan_a = std::isnan(value(a)), nan_b = std::isnan(value(b));
          if (nan_a || nan_b) return descending ? nan_a && !nan_b : nan_b && !nan_a;
        }
        return descending ? value(a) > value(b) : value(a) < value(b);
      };
      std::iota(order.begin(), order.end(), int64_t{0});
      std::stable_sort(order.begin(), order.end(), before);
      for (int64_t k = 0; k < blocks.size; ++k) result[(o * blocks.size + k) * blocks.inner + i] = order[static_cast<size_t>(k)];
    }
}

std::vector<Literal> evaluate_argsort(const EvaluateRequest& request) {
  const ArgSort& op = std::get<ArgSort>(request.op);
  const Literal& x = request.inputs[0];
  Literal result = Literal::uninitialised(DType::I64, x.sizes());
  if (x.count() == 0) return {result};
  int64_t* out = result.as_mutable<int64_t>().data();
  if (is_floating(x.dtype()))
    sort_lines<double>(x, blocks_of(x.sizes(), op.dim), op.descending, out);
  else
    sort_lines<int64_t>(x, blocks_of(x.sizes(), op.dim), op.descending, out);
  return {result};
}

std::vector<TensorType> infer_scatter_position(const InferRequest& request) {
  const ScatterPosition& op = std::get<ScatterPosition>(request.op);
  const TensorType& index = request.inputs[0];
  check_dim("scatter_position", op.dim, index);
  if (!is_integer(index.dtype)) throw UserError(fmt::format("scatter_position: found indices {}, wanted integers", text(index)));
  check_sizes("scatter_position", {op.size}, request.module);
  TensorType result{DType::I64, index.shape, {}};
  result.shape[static_cast<size_t>(op.dim)] = op.size;
  return {result};
}

std::vector<Literal> evaluate_scatter_position(const EvaluateRequest& request) {
  const ScatterPosition& op = std::get<ScatterPosition>(request.op);
  const Literal& index = request.inputs[0];
  const Blocks from = blocks_of(index.sizes(), op.dim);
  const int64_t size = op.size.constant();
  Literal result = Literal::uninitialised(DType::I64, sizes_of(request.results[0]));
  const std::span<int64_t> out = result.as_mutable<int64_t>();
  std::fill(out.begin(), out.end(), -1);
  std::vector<int64_t> indices(static_cast<size_t>(index.count()));
  load_elements(index, 0, index.count(), indices.data());
  for (int64_t o = 0; o < from.outer; ++o)
    for (int64_t k = 0; k < from.size; ++k)
      for (int64_t i = 0; i < from.inner; ++i) {
        const int64_t place = indices[static_cast<size_t>((o * from.size + k) * from.inner + i)];
        if (place < 0 || place >= size) throw UserError(fmt::format("scatter_position: found index {}, wanted at least 0 and less than {}", place, size));
        out[static_cast<size_t>((o * size + place) * from.inner + i)] = k;
      }
  return {result};
}

}  // namespace

OpInfo argsort_row() {
  OpInfo info;
  info.name = "argsort";
  info.infer = infer_argsort;
  info.evaluate = evaluate_argsort;
  info.sharding_rule = [](const ShardingRequest& request) { return all_but_dim(request, std::get<ArgSort>(request.op).dim); };
  info.cost = [](const CostRequest& request) { return elementwise_cost(request, 20); };
  info.differentiable = false;
  return info;
}

OpInfo scatter_position_row() {
  OpInfo info;
  info.name = "scatter_position";
  info.infer = infer_scatter_position;
  info.evaluate = evaluate_scatter_position;
  info.sharding_rule = [](const ShardingRequest& request) { return all_but_dim(request, std::get<ScatterPosition>(request.op).dim); };
  info.cost = [](const CostRequest& request) { return elementwise_cost(request, 1); };
  info.differentiable = false;
  return info;
}

}  // namespace stepgraph
