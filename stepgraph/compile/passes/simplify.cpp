// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/simplify.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "stepgraph/compile/ops/elementwise_table.h"
#include "stepgraph/compile/ops/known_values.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/compile/passes/compose_movement.h"
#include "stepgraph/compile/passes/remap.h"

namespace stepgraph {
namespace {

constexpr int64_t folded_elements_max = 16;
constexpr int movements_seen_through = 4;  // a chain of any length must not cost its square

bool is_iota(const std::vector<int64_t>& dims) {
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<int64_t>(i)) return false;
  return true;
}
bool all_equal(const std::vector<int64_t>& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == wanted; });
}
bool all_zero(const Shape& dims) {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim == Dim(0); });
}

class GraphSimplifier {
 public:
  explicit GraphSimplifier(Graph& graph) : graph_(graph), remap_(graph) {}

  void run() {
    for (Node& node : graph_.nodes) {
      remap_.inputs(node);
      if (node.results.size() != 1 || fold(node)) continue;
      skip_inner(node);
      const std::optional<ValueId> same = equal_input(node);
      if (same && same_dtype_and_shape(graph_.type(*same), graph_.type(node.results[0]))) replace_value(graph_, remap_, node.results[0], *same);
    }
    remap_.outputs(graph_);
    remove_dead_nodes(graph_);
  }

 private:
  const Node* producer(ValueId value) const {
    const int32_t node = graph_.values[static_cast<size_t>(value.index)].node;
    return node < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(node)];
  }
  template <class T>
  const T* producer_op(ValueId value) const {
    const Node* node = producer(value);
    return node == nullptr ? nullptr : std::get_if<T>(&node->op);
  }

  /// An element-wise node of small constants becomes a constant.
  bool fold(Node& node) {
    const OpInfo& info = op_info(node.op);
    const TensorType& type = graph_.type(node.results[0]);
    if (!info.elementwise || info.evaluate == nullptr || node.inputs.empty()) return false;
    int64_t count = 1;
    for (const Dim& dim : type.shape) {
      if (!dim.is_constant() || dim.constant() > folded_elements_max) return false;
      count *= dim.constant();
      if (count > folded_elements_max) return false;
    }
    std::vector<Literal> values;
    for (ValueId input : node.inputs) {
      const Constant* constant = producer_op<Constant>(input);
      if (constant == nullptr) return false;
      values.push_back(constant->value);
    }
    try {
      Literal value = info.evaluate({node.op, values, std::span<const TensorType>(&type, 1)}).at(0);
      node.op = Constant{std::move(value)};
      node.inputs.clear();
      return true;
    } catch (const UserError&) {
      return false;  // an error of the program comes when and if it runs
    }
  }

  bool is_neutral(ValueId value, Neutral neutral) const {
    if (neutral == Neutral::NoNumber) return false;
    const std::optional<double> number = uniform_number(graph_, value);
    if (!number) return false;
    const bool floating = is_floating(graph_.type(value).dtype);
    switch (neutral) {
      case Neutral::NoNumber: return false;
      case Neutral::PlusZero: return *number == 0 && (!floating || !std::signbit(*number));
      case Neutral::MinusZero: return *number == 0 && (!floating || std::signbit(*number));
      case Neutral::One: return *number == 1;
      case Neutral::IntegerOne: return *number == 1 && !floating;
    }
    return false;
  }

  std::optional<ValueId> equal_operand(const Node& node, BinaryKind kind) const {
    const BinaryInfo& info = binary_info(kind);
    if (is_neutral(node.inputs[1], info.neutral)) return node.inputs[0];
    if (info.order == OperandOrder::Commutes && is_neutral(node.inputs[0], info.neutral)) return node.inputs[1];
    return std::nullopt;
  }

  /// An operand that the result equals, when the types agree as well.
  std::optional<ValueId> equal_input(const Node& node) const {
    if (node.inputs.empty()) return std::nullopt;
    const ValueId x = node.inputs[0];
    bool same = false;
    if (const auto* binary = std::get_if<Binary>(&node.op)) return equal_operand(node, binary->kind);
    if (const auto* unary = std::get_if<Unary>(&node.op)) return undone(node, unary->kind);
    if (std::holds_alternative<Convert>(node.op) || std::holds_alternative<Reshape>(node.op)) same = true;  // types decide
    if (std::holds_alternative<Concatenate>(node.op)) same = node.inputs.size() == 1;
    if (const auto* transpose = std::get_if<Transpose>(&node.op)) same = is_iota(transpose->permutation);
    if (const auto* broadcast = std::get_if<Broadcast>(&node.op)) same = is_iota(broadcast->dims);
    if (const auto* reverse = std::get_if<Reverse>(&node.op)) same = reverse->dims.empty();
    if (const auto* slice = std::get_if<Slice>(&node.op)) same = all_zero(slice->starts) && all_equal(slice->strides, 1);
    if (const auto* pad = std::get_if<Pad>(&node.op)) same = all_zero(pad->low) && all_zero(pad->high) && all_equal(pad->interior, 0);
    return same ? std::optional(x) : std::nullopt;
  }

  /// Negate of negate, not of not.
  std::optional<ValueId> undone(const Node& node, UnaryKind kind) const {
    if (kind != UnaryKind::Negate && kind != UnaryKind::Not) return std::nullopt;
    const Unary* inner = producer_op<Unary>(node.inputs[0]);
    if (inner == nullptr || inner->kind != kind) return std::nullopt;
    return producer(node.inputs[0])->inputs.at(0);
  }

  /// A movement of what another movement gives: one is enough.
  void skip_inner(Node& node) {
    for (int steps = 0; steps < movements_seen_through && node.inputs.size() == 1; ++steps) {
      const ValueId between = node.inputs[0];
      const Node* inner = producer(between);
      if (inner == nullptr || inner->inputs.size() != 1) return;
      std::optional<Op> both = compose_movement(graph_.type(inner->inputs[0]), inner->op, graph_.type(between), node.op);
      if (!both) return;
      node.op = std::move(*both);
      node.inputs[0] = inner->inputs[0];
    }
  }

  Graph& graph_;
  Remap remap_;
};

}  // namespace

Module simplify(Module module) {
  for (Graph& graph : module.graphs) GraphSimplifier(graph).run();
  return module;
}

}  // namespace stepgraph
