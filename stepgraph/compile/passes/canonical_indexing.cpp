// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/known_values.h"
#include "stepgraph/compile/passes/canonical_rewrites.h"

namespace stepgraph {
namespace {

constexpr int elements_seen_through = 8;
constexpr int64_t literal_elements_max = 4096;
constexpr int index_movements_max = 4;

bool is_below(const Literal& indices, int64_t size) {
  if (indices.count() > literal_elements_max) return false;
  for (int64_t i = 0; i < indices.count(); ++i)
    if (indices.integer_at(i) < 0 || indices.integer_at(i) >= size) return false;
  return true;
}

/// The node that makes it can give nothing outside [0, size).
bool is_in_range(const NodeRewrite& node, Value index, const Dim& size) {
  const auto fits = [&](const Dim& end) { return node.symbols().less_or_equal(end, size) == Truth::True; };
  for (int i = 0; i < index_movements_max; ++i) {
    const Node* made = node.producer(index);
    if (made == nullptr) return false;
    if (const auto* constant = std::get_if<Constant>(&made->op)) return size.is_constant() && is_below(constant->value, size.constant());
    if (const auto* iota = std::get_if<Iota>(&made->op))
      return is_integer(iota->dtype) && node.symbols().less_or_equal(0, iota->start) == Truth::True &&
             fits(iota->start + iota->shape[static_cast<size_t>(iota->dim)]);
    if (const auto* arg = std::get_if<ArgReduce>(&made->op)) return fits(node.operand(index).shape()[static_cast<size_t>(arg->dim)]);
    if (!std::holds_alternative<Reshape>(made->op) && !std::holds_alternative<Broadcast>(made->op)) return false;
    index = node.operand(index);
  }
  return false;
}

bool is_held_to(const NodeRewrite& node, Value index, const Dim& size) {
  const auto [first, last] = node.gathered.equal_range(index.id.index);
  return std::any_of(first, last, [&](const auto& held) { return node.symbols().less_or_equal(held.second, size) == Truth::True; });
}

Dims dims_in_order(size_t rank) {
  Dims dims(rank);
  std::iota(dims.begin(), dims.end(), int64_t{0});
  return dims;
}

/// What a gather of one element a row makes of a tree of element-wise ops: the same tree on what is gathered, as long as that is one value.
class GatherOfElements {
 public:
  GatherOfElements(const NodeRewrite& node, int64_t dim) : node_(node), dim_(dim), index_(node.inputs[1]) {}

  bool goes_through(Value value, int depth = 0) const {
    const Node* made = node_.producer(value);
    if (made == nullptr || depth == elements_seen_through || !is_per_element(made->op)) return false;
    const auto needs_gather = [&](ValueId input) { return !is_equal_along_dim(node_.builder.value(input)); };
    return std::count_if(made->inputs.begin(), made->inputs.end(), needs_gather) == 1;
  }
  Value gathered(Value value, int depth = 0) const {
    Builder& builder = node_.builder;
    if (is_equal_along_dim(value)) {
      Broadcast spread = *node_.producer_op<Broadcast>(value);
      spread.shape = index_.shape();
      return builder.emit_one(std::move(spread), {node_.operand(value)});
    }
    if (!goes_through(value, depth)) return builder.emit_one(Gather{dim_}, {value, index_});
    const Node made = *node_.producer(value);
    std::vector<Value> operands;
    for (const ValueId input : made.inputs) operands.push_back(gathered(builder.value(input), depth + 1));
    return builder.emit(made.op, operands).at(0);
  }

 private:
  bool is_equal_along_dim(Value value) const {
    const auto* broadcast = node_.producer_op<Broadcast>(value);
    if (broadcast == nullptr) return false;
    const auto from = std::find(broadcast->dims.begin(), broadcast->dims.end(), dim_);
    return from == broadcast->dims.end() || node_.operand(value).shape()[static_cast<size_t>(from - broadcast->dims.begin())] == Dim(1);
  }
  const NodeRewrite& node_;
  int64_t dim_;
  Value index_;
};

}  // namespace

Rewritten select_for_scatter(const NodeRewrite& node) {
  const auto* scatter = std::get_if<ScatterAdd>(&node.op);
  if (scatter == nullptr) return std::nullopt;
  const Value base = node.inputs[0], index = node.inputs[1], updates = node.inputs[2];
  const Shape& shape = base.shape();
  const Dim& size = shape[static_cast<size_t>(scatter->dim)];
  const std::optional<double> start = uniform_number(node.builder.graph(), base.id);
  if (start != 0.0 || std::signbit(*start) || base.dtype() == DType::Bool || index.dim(scatter->dim) != Dim(1)) return std::nullopt;
  if (!is_held_to(node, index, size) && !is_in_range(node, index, size)) return std::nullopt;
  const Dims dims = dims_in_order(shape.size());
  const Value places = iota(node.builder, DType::I64, shape, scatter->dim);
  const Value chosen = equal(places, broadcast_in_dim(convert(index, DType::I64), shape, dims));
  // Zero and the update: a negative zero becomes the positive one that the sum is.
  const Value sums = binary(BinaryKind::Add, updates, zeros(node.builder, {updates.dtype(), updates.shape(), {}}));
  return {{node.builder.emit_one(Select{}, {chosen, broadcast_in_dim(sums, shape, dims), base})}};
}

Rewritten gather_before_elements(const NodeRewrite& node) {
  const auto* gather = std::get_if<Gather>(&node.op);
  if (gather == nullptr || node.inputs[1].dim(gather->dim) != Dim(1) || node.inputs[0].dim(gather->dim) == Dim(1)) return std::nullopt;
  const GatherOfElements elements(node, gather->dim);
  if (!elements.goes_through(node.inputs[0])) return std::nullopt;
  return {{elements.gathered(node.inputs[0])}};
}

Rewritten sum_of_updates(const NodeRewrite& node) {
  const auto* reduce = std::get_if<Reduce>(&node.op);
  if (reduce == nullptr || reduce->kind != ReduceKind::Sum || reduce->dims.size() != 1) return std::nullopt;
  const auto* scatter = node.producer_op<ScatterAdd>(node.inputs[0]);
  if (scatter == nullptr || scatter->dim != reduce->dims[0]) return std::nullopt;
  const Value base = node.operand(node.inputs[0], 0), index = node.operand(node.inputs[0], 1), updates = node.operand(node.inputs[0], 2);
  const Dim& size = base.shape()[static_cast<size_t>(scatter->dim)];
  if (uniform_number(node.builder.graph(), base.id) != 0.0 || index.dim(scatter->dim) != Dim(1)) return std::nullopt;
  if (!is_held_to(node, index, size) && !is_in_range(node, index, size)) return std::nullopt;
  // Zero and the update, as in select_for_scatter.
  const Value sums = node.builder.emit_one(Reshape{node.results[0].shape}, {updates});
  return {{binary(BinaryKind::Add, sums, zeros(node.builder, {sums.dtype(), sums.shape(), {}}))}};
}

Rewritten scatter_into_sum(const NodeRewrite& node) {
  const auto* sum = std::get_if<Binary>(&node.op);
  if (sum == nullptr || sum->kind != BinaryKind::Add) return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Value scattered = node.inputs[i], other = node.inputs[1 - i];
    const bool is_scatter = node.producer_op<IndexAdd>(scattered) != nullptr || node.producer_op<ScatterAdd>(scattered) != nullptr;
    // What a loop carries may leave it as a sum.
    if (!is_scatter || node.producer(other) == nullptr || !node.is_sole_use(scattered) || uniform_number(node.builder.graph(), node.operand(scattered).id) != 0.0) continue;
    const Op op = node.producer(scattered)->op;
    return {{node.builder.emit_one(op, {other, node.operand(scattered, 1), node.operand(scattered, 2)})}};
  }
  return std::nullopt;
}

}  // namespace stepgraph
