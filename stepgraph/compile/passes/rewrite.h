// SPDX-License-Identifier: Apache-2.0
// Graphs built anew node by node, each by the first rewrite of a list that takes it, else as it is. What the passes of local rewrites share.
#pragma once
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// A node about to be appended, on values of the new graph. New nodes take its place, scope and phase.
struct NodeRewrite {
  Builder& builder;
  const Op& op;
  std::span<const Value> inputs;
  std::span<const TensorType> results;
  /// How many operands and outputs each value of the new graph serves; 0 for one that stands in no value's place.
  const std::vector<int32_t>& uses;
  /// The same of each result of the node.
  std::span<const int32_t> result_uses;
  /// The op that alone reads the first result; null: none, several, or an output does.
  const Op* only_user;
  /// Indices that a Gather of the new graph reads by, with the size that it holds them to.
  const std::unordered_multimap<int32_t, Dim>& gathered;

  /// The node that makes a value, null for an input. Not to be held while nodes are appended.
  const Node* producer(Value value) const;
  template <class T>
  const T* producer_op(Value value) const {
    const Node* node = producer(value);
    return node == nullptr ? nullptr : std::get_if<T>(&node->op);
  }
  /// Operand `index` of the node that makes the value.
  Value operand(Value value, size_t index = 0) const { return builder.value(producer(value)->inputs.at(index)); }
  bool is_sole_use(Value value) const { return uses[at(value.id)] == 1; }
  const SymbolTable& symbols() const { return builder.module().symbols; }
};
/// The values that stand for the node's results, of their types (an empty Value for one without use); nothing where the rewrite does not apply.
using Rewrite = std::optional<std::vector<Value>> (*)(const NodeRewrite&);

/// All graphs, until no rewrite applies, but at most a few rounds. Dead nodes go. Graphs without an op for which `concerns` holds are left as they are.
Module rewrite_nodes(Module module, std::span<const Rewrite> rewrites, bool (*concerns)(const Op&) = nullptr);

/// An op of each element by itself, whatever its shape.
bool is_per_element(const Op& op);

}  // namespace stepgraph
