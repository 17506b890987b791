// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/known_values.h"

namespace stepgraph {
namespace {

constexpr int nodes_seen_through = 8;
constexpr int64_t elements_looked_at = 64;  // large equal ones are spread from a scalar, and weights need no scan

bool is_zero(const Literal& value) {
  if (value.count() > elements_looked_at) return false;
  for (int64_t i = 0; i < value.count(); ++i)
    if (value.at(i) != 0) return false;
  return true;
}

bool moves(const Op& op) {
  return std::holds_alternative<Broadcast>(op) || std::holds_alternative<Reshape>(op) || std::holds_alternative<Transpose>(op) ||
         std::holds_alternative<Slice>(op) || std::holds_alternative<Convert>(op) || std::holds_alternative<StopGradient>(op) ||
         std::holds_alternative<Reshard>(op);
}

}  // namespace

bool is_zero(const Graph& graph, ValueId value) {
  for (int i = 0; i < nodes_seen_through; ++i) {
    const int32_t index = graph.values[static_cast<size_t>(value.index)].node;
    if (index < 0) return false;
    const Node& node = graph.nodes[static_cast<size_t>(index)];
    if (const auto* constant = std::get_if<Constant>(&node.op)) return is_zero(constant->value);
    if (!moves(node.op)) return false;
    value = node.inputs[0];
  }
  return false;
}

std::optional<double> uniform_number(const Graph& graph, ValueId value) {
  for (int i = 0; i < nodes_seen_through; ++i) {
    const int32_t index = graph.values[at(value)].node;
    if (index < 0) return std::nullopt;
    const Node& node = graph.nodes[static_cast<size_t>(index)];
    if (const auto* constant = std::get_if<Constant>(&node.op))
      return constant->value.count() == 1 ? std::optional(constant->value.at(0)) : std::nullopt;
    if (!std::holds_alternative<Broadcast>(node.op)) return std::nullopt;
    value = node.inputs[0];
  }
  return std::nullopt;
}

}  // namespace stepgraph
