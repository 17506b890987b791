// SPDX-License-Identifier: Apache-2.0
// What the passes of a training step hand on to each other: the outputs of the graph by role.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// Of role scalar: the gradient of the loss's numerator, from `differentiate` until `scale` gives it its value.
inline constexpr const char* loss_gradient_name = "loss_gradient";

struct StepResults {
  Value numerator, denominator;
  std::vector<std::pair<Role, Value>> metrics;
  std::vector<std::pair<std::string, Value>> gradients, states;  ///< by parameter; new ones by state
};
/// `outputs` are the values of the graph's outputs, there or where the graph was copied to. Other roles are left out.
StepResults collect(const Graph& graph, const std::vector<Value>& outputs);
/// The outputs of the builder's own graph; it has none then.
StepResults take_outputs(Builder& builder);
/// In the order of the struct.
void put_outputs(Builder& builder, const StepResults& results);
/// Parameters, buffers, optimizer state, batch, seed, step, others.
void order_inputs(Graph& graph);
/// The end of a pass: inputs in order of their roles, nodes that are read, `step` as the graph of that entry.
Module finish_step(Module module, GraphId step);

}  // namespace stepgraph
