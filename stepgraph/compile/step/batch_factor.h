// SPDX-License-Identifier: Apache-2.0
// Where the batch lies in merged dims: in a dim of the size sequence * batch it may be the outer or the inner factor, which the size does not tell.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

/// By dim of a value: the product of the factors in front of the batch, 1 where the batch is outermost. Nothing where it is not known, or not in the dim.
using BatchFactors = std::vector<std::optional<Dim>>;
/// What is known of a graph's inputs and outputs.
struct BatchBorder {
  std::vector<BatchFactors> inputs, outputs;
};
std::string text(const BatchBorder& border);

/// Follows the batch through a module by the factors of the ops' sharding rules, forwards and backwards: a mask lies as what it is multiplied with.
class BatchFactorAnalysis {
 public:
  BatchFactorAnalysis(const Module& module, std::string batch) : module_(module), batch_(std::move(batch)) {}
  /// Of all values of a graph that stands in such surroundings; an empty border knows nothing.
  std::vector<BatchFactors> values(const Graph& graph, const BatchBorder& around);
  /// What a Call's or Loop's node tells its callee.
  static BatchBorder around_callee(const Node& node, const std::vector<BatchFactors>& values);
  const std::string& batch() const { return batch_; }
  bool has_batch(const Dim& dim) const;
  /// The dim over the batch; nothing if it is not a product of the batch and something else.
  std::optional<Dim> beside_batch(const Dim& dim) const;

 private:
  bool through_op(const Graph& graph, const Node& node, std::vector<BatchFactors>& values) const;
  bool through_callee(const Node& node, std::vector<BatchFactors>& values);

  const Module& module_;
  std::string batch_;
  std::map<std::pair<GraphId, std::string>, BatchBorder> known_;
};

}  // namespace stepgraph
