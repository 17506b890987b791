// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/known_values.h"
#include "stepgraph/compile/passes/canonical_rewrites.h"
#include "stepgraph/compile/passes/compose_movement.h"

namespace stepgraph {
namespace {

constexpr size_t summed_pads_max = 256;

double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::F64: return 0x1p-1022;
    case DType::F16: return 0x1p-14;
    default: return 0x1p-126;
  }
}

/// Its dims without those of size 1 that the reshape added; nothing if it did anything else.
std::optional<Shape> shape_before_ones(const NodeRewrite& node, Value value) {
  if (node.producer_op<Reshape>(value) == nullptr) return std::nullopt;
  const Value inner = node.operand(value);
  if (inner.rank() >= value.rank() || !match_without_ones(inner.shape(), value.shape())) return std::nullopt;
  return inner.shape();
}

/// A pad of zeros along one dim alone.
struct PadAlong {
  Value inner;
  size_t dim = 0;
  Dim low, end;  ///< where the inner value lies in the result
};

std::optional<PadAlong> pad_along(const NodeRewrite& node, Value value) {
  const auto* pad = node.producer_op<Pad>(value);
  if (pad == nullptr) return std::nullopt;
  std::optional<size_t> dim;
  for (size_t d = 0; d < pad->low.size(); ++d) {
    if (pad->interior[d] != 0) return std::nullopt;
    if (pad->low[d] == Dim(0) && pad->high[d] == Dim(0)) continue;
    if (dim) return std::nullopt;
    dim = d;
  }
  if (!dim || uniform_number(node.builder.graph(), node.operand(value, 1).id) != 0.0) return std::nullopt;
  const Value inner = node.operand(value);
  return PadAlong{inner, *dim, pad->low[*dim], pad->low[*dim] + inner.shape()[*dim]};
}

/// The summands of a tree of additions, if they are few and all of them pads along one dim.
std::optional<std::vector<PadAlong>> summed_pads(const NodeRewrite& node) {
  std::vector<PadAlong> pads;
  std::vector<Value> open(node.inputs.rbegin(), node.inputs.rend());
  while (!open.empty()) {
    const Value value = open.back();
    open.pop_back();
    if (const auto* add = node.producer_op<Binary>(value); add != nullptr && add->kind == BinaryKind::Add) {
      open.push_back(node.operand(value, 1));
      open.push_back(node.operand(value, 0));
    } else if (const auto pad = pad_along(node, value); pad && (pads.empty() || pad->dim == pads[0].dim)) {
      pads.push_back(*pad);
    } else {
      return std::nullopt;
    }
    if (pads.size() + open.size() > summed_pads_max) return std::nullopt;
  }
  return pads;
}

}  // namespace

Rewritten drop_stop_gradient(const NodeRewrite& node) {
  if (!std::holds_alternative<StopGradient>(node.op)) return std::nullopt;
  return {{node.inputs[0]}};
}

Rewritten multiply_by_reciprocal(const NodeRewrite& node) {
  const auto* binary = std::get_if<Binary>(&node.op);
  if (binary == nullptr || binary->kind != BinaryKind::Divide) return std::nullopt;
  const Value divisor = node.inputs[1];
  if (!is_floating(divisor.dtype())) return std::nullopt;
  const std::optional<double> number = uniform_number(node.builder.graph(), divisor.id);
  int exponent = 0;
  if (!number || !std::isfinite(*number) || std::fabs(std::frexp(*number, &exponent)) != 0.5) return std::nullopt;
  const double reciprocal = 1 / *number;
  if (std::fabs(reciprocal) < smallest_normal(divisor.dtype()) || round_to(divisor.dtype(), reciprocal) != reciprocal) return std::nullopt;
  return {{node.builder.emit_one(Binary{BinaryKind::Multiply}, {node.inputs[0], full(node.builder, divisor.dtype(), divisor.shape(), reciprocal)})}};
}

Rewritten reshape_after_elements(const NodeRewrite& node) {
  if (!is_per_element(node.op)) return std::nullopt;
  std::optional<Shape> shape;
  for (const Value input : node.inputs)
    if (!shape) shape = shape_before_ones(node, input);
  if (!shape) return std::nullopt;
  std::vector<std::optional<Op>> spread(node.inputs.size());  // of operands that are broadcasts
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value input = node.inputs[i];
    if (shape_before_ones(node, input) == shape) continue;
    const auto* broadcast = node.producer_op<Broadcast>(input);
    if (broadcast != nullptr) spread[i] = compose_movement(node.operand(input).type(), *broadcast, input.type(), Reshape{*shape});
    if (!spread[i]) return std::nullopt;
  }
  std::vector<Value> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value inner = node.operand(node.inputs[i]);
    operands.push_back(spread[i] ? node.builder.emit_one(*spread[i], {inner}) : inner);
  }
  const Value narrow = node.builder.emit(node.op, operands).at(0);
  return {{node.builder.emit_one(Reshape{node.results[0].shape}, {narrow})}};
}

Rewritten concatenate_pads(const NodeRewrite& node) {
  const auto is_add = [](const Op* op) {
    const auto* binary = op == nullptr ? nullptr : std::get_if<Binary>(op);
    return binary != nullptr && binary->kind == BinaryKind::Add;
  };
  // A part of a longer sum is looked at with the whole.
  if (!is_add(&node.op) || is_add(node.only_user)) return std::nullopt;
  std::optional<std::vector<PadAlong>> pads = summed_pads(node);
  if (!pads) return std::nullopt;
  const size_t dim = pads->at(0).dim;
  std::vector<Value> parts;
  Dim end = 0;
  while (!pads->empty()) {
    const auto next = std::find_if(pads->begin(), pads->end(), [&](const PadAlong& pad) { return node.symbols().equal(pad.low, end) == Truth::True; });
    if (next == pads->end()) return std::nullopt;
    parts.push_back(next->inner);
    end = next->end;
    pads->erase(next);
  }
  if (node.symbols().equal(end, node.results[0].shape[dim]) != Truth::True) return std::nullopt;
  return {{node.builder.emit(Concatenate{static_cast<int64_t>(dim)}, parts).at(0)}};
}

}  // namespace stepgraph
