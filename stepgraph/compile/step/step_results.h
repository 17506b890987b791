// SPDX-License-Identifier: Apache-2.0
// What the passes of a training step hand on to each other: the outputs of the graph by role.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// A term of the loss (program/role.h): numerator / (max(sum, least) + constant).
struct LossTerm {
  std::string name;
  Value numerator, sum;
  std::optional<Value> least = {}, constant = {};
  bool is_whole = false;  ///< of whole batches alone: no parts of a batch add up to it

  Value denominator() const;  ///< in nodes that are added
};
/// The term of that name, a new one if there is none.
LossTerm& term_named(std::vector<LossTerm>& loss, std::string_view name);
/// `kind` is one of a loss denominator.
void set_denominator(LossTerm& term, RoleKind kind, Value value);

struct StepResults {
  std::vector<LossTerm> loss;  ///< one or more
  std::vector<std::pair<Role, Value>> metrics;                          ///< of the model
  std::optional<Value> learning_rate, gradient_norm, loss_scale, skipped;  ///< of the step
  std::optional<Value> gradient_factor;  ///< what all gradients are yet to be multiplied by: the optimizer does it on its way
  std::vector<std::pair<std::string, Value>> gradients, states;  ///< by parameter; new ones by state
};
/// `outputs` are the values of the graph's outputs, there or where the graph was copied to. Other roles are left out.
StepResults collect(const Graph& graph, const std::vector<Value>& outputs);
/// The outputs of the builder's own graph; it has none then.
StepResults take_outputs(Builder& builder);
/// In the order of the struct.
void put_outputs(Builder& builder, const StepResults& results);
/// The end of a pass: inputs in order of their roles, nodes that are read, `step` as the graph of that entry.
Module finish_step(Module module, GraphId step);

}  // namespace stepgraph
