// SPDX-License-Identifier: Apache-2.0
// Rows about order: argsort, the largest and smallest elements, and the positions of a scatter.
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

// ---- pick

bool is_ranked(const Pick& op) { return op.kind == PickKind::Ranked; }

std::vector<TensorType> infer_pick(const InferRequest& request) {
  const Pick& op = std::get<Pick>(request.op);
  const TensorType& x = request.inputs[0];
  check_dim(name(request.op), op.dim, x);
  const Dim& size = x.shape[static_cast<size_t>(op.dim)];
  if (op.count < (is_ranked(op) ? 1 : 0) || (size.is_constant() && op.count > size.constant()))
    throw UserError(fmt::format("{}: found count {} for dim {} of {}", name(request.op), op.count, op.dim, text(x)));
  TensorType result{DType::I64, x.shape, {}};
  result.shape[static_cast<size_t>(op.dim)] = is_ranked(op) ? 1 : op.count;
  return {result};
}

template <class T>
bool is_not_a_number(T value) {
  if constexpr (std::is_same_v<T, double>) return std::isnan(value);
  return false;
}

template <class T>
struct Placed {
  T value;
  int64_t place;
};

/// The first `count` of a line by std::partial_sort where these are few, else by std::nth_element and a sort: which of equal elements these take is not said
/// by the standard, but is the same wherever the library is.
template <class T>
void move_first(std::vector<Placed<T>>& line, const Pick& op) {
  const bool largest = op.kind == PickKind::Largest || op.kind == PickKind::AnyLargest;
  const bool ordered = op.kind == PickKind::Largest || op.kind == PickKind::Smallest;
  const auto before = [largest](const Placed<T>& a, const Placed<T>& b) {
    const Placed<T>&high = largest ? a : b, &low = largest ? b : a;
    return (is_not_a_number(high.value) && !is_not_a_number(low.value)) || high.value > low.value;
  };
  if (op.count == 0) return;
  const auto end = line.begin() + op.count;
  if (op.count * 64 <= static_cast<int64_t>(line.size())) return std::partial_sort(line.begin(), end, line.end(), before);
  std::nth_element(line.begin(), end - 1, line.end(), before);
  if (ordered) std::sort(line.begin(), end - 1, before);
}

/// Hoare's selection, the pivot being the median of the first, the middle and the last element: line[rank] gets what a sort would put there.
template <class T>
void move_ranked(std::vector<Placed<T>>& line, int64_t rank) {
  const auto at = [&](int64_t k) -> Placed<T>& { return line[static_cast<size_t>(k)]; };
  const auto above = [](const Placed<T>& a, const Placed<T>& b) { return (is_not_a_number(a.value) && !is_not_a_number(b.value)) || a.value > b.value; };
  const auto exchange_if_above = [&](int64_t a, int64_t b) {
    if (above(at(a), at(b))) std::swap(at(a), at(b));
  };
  int64_t first = 0, last = static_cast<int64_t>(line.size()) - 1;
  while (last > first + 1) {
    std::swap(at(first + (last - first) / 2), at(first + 1));
    exchange_if_above(first + 1, last);
    exchange_if_above(first, last);
    exchange_if_above(first + 1, first);
    const Placed<T> pivot = at(first);
    int64_t left = first + 1, right = last;
    while (true) {
      do ++left;
      while (above(pivot, at(left)));
      do --right;
      while (above(at(right), pivot));
      if (right < left) break;
      std::swap(at(left), at(right));
    }
    std::swap(at(first), at(right));
    if (right <= rank) first = left;
    if (right >= rank) last = right - 1;
  }
  if (last == first + 1) exchange_if_above(first, last);
}

template <class T>
void pick_lines(const Literal& x, const Pick& op, const Blocks& blocks, int64_t* result) {
  std::vector<T> values(static_cast<size_t>(x.count()));
  load_elements(x, 0, x.count(), values.data());
  const int64_t count = is_ranked(op) ? 1 : op.count;
  std::vector<Placed<T>> line(static_cast<size_t>(blocks.size));
  for (int64_t o = 0; o < blocks.outer; ++o)
    for (int64_t i = 0; i < blocks.inner; ++i) {
      for (int64_t k = 0; k < blocks.size; ++k) line[static_cast<size_t>(k)] = {values[static_cast<size_t>((o * blocks.size + k) * blocks.inner + i)], k};
      const int64_t from = is_ranked(op) ? op.count - 1 : 0;
      if (is_ranked(op)) move_ranked(line, from);
      else move_first(line, op);
      for (int64_t k = 0; k < count; ++k) result[(o * count + k) * blocks.inner + i] = line[static_cast<size_t>(from + k)].place;
    }
}

std::vector<Literal> evaluate_pick(const EvaluateRequest& request) {
  const Pick& op = std::get<Pick>(request.op);
  const Literal& x = request.inputs[0];
  const Blocks blocks = blocks_of(x.sizes(), op.dim);
  if (op.count > blocks.size) throw UserError(fmt::format("{}: found count {} for {} elements", name(request.op), op.count, blocks.size));
  Literal result = Literal::uninitialised(DType::I64, sizes_of(request.results[0]));
  if (result.count() == 0) return {result};
  int64_t* out = result.as_mutable<int64_t>().data();
  if (is_floating(x.dtype()))
    pick_lines<double>(x, op, blocks, out);
  else
    pick_lines<int64_t>(x, op, blocks, out);
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

OpInfo row_of(OpType<ArgSort>) {
  OpInfo info;
  info.infer = infer_argsort;
  info.evaluate = evaluate_argsort;
  info.sharding_rule = [](const ShardingRequest& request) { return all_but_dim(request, std::get<ArgSort>(request.op).dim); };
  info.cost = [](const CostRequest& request) { return elementwise_cost(request, 20); };
  info.differentiable = false;
  return info;
}

OpInfo row_of(OpType<Pick>) {
  OpInfo info;
  info.infer = infer_pick;
  info.evaluate = evaluate_pick;
  info.sharding_rule = [](const ShardingRequest& request) { return all_but_dim(request, std::get<Pick>(request.op).dim); };
  info.cost = [](const CostRequest& request) { return elementwise_cost(request, 5); };
  info.differentiable = false;
  return info;
}

OpInfo row_of(OpType<ScatterPosition>) {
  OpInfo info;
  info.infer = infer_scatter_position;
  info.evaluate = evaluate_scatter_position;
  info.sharding_rule = [](const ShardingRequest& request) { return all_but_dim(request, std::get<ScatterPosition>(request.op).dim); };
  info.cost = [](const CostRequest& request) { return elementwise_cost(request, 1); };
  info.differentiable = false;
  return info;
}

}  // namespace stepgraph
