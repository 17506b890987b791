// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/step_results.h"

#include <algorithm>

namespace stepgraph {
void order_inputs(Graph& graph) {
  auto rank = [](const GraphInput& input) {
    switch (input.role.kind) {
      case RoleKind::Parameter: return 0;
      case RoleKind::Buffer: return 1;
      case RoleKind::OptimizerState: return 2;
      case RoleKind::Batch: return 3;
      case RoleKind::Seed: return 4;
      default: return 5;
    }
  };
  std::stable_sort(graph.inputs.begin(), graph.inputs.end(), [&](const GraphInput& a, const GraphInput& b) { return rank(a) < rank(b); });
}

StepResults collect(const Graph& graph, const std::vector<Value>& outputs) {
  StepResults results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Role& role = graph.outputs[i].role;
    switch (role.kind) {
      case RoleKind::LossNumerator: results.numerator = outputs[i]; break;
      case RoleKind::LossDenominator: results.denominator = outputs[i]; break;
      case RoleKind::Metric:
      case RoleKind::MetricNumerator:
      case RoleKind::MetricDenominator: results.metrics.emplace_back(role, outputs[i]); break;
      case RoleKind::NewState: results.states.emplace_back(role.name, outputs[i]); break;
      case RoleKind::Gradient: results.gradients.emplace_back(role.name, outputs[i]); break;
      default: break;
    }
  }
  SG_CHECK(results.numerator.builder && results.denominator.builder, "a training step without a loss");
  return results;
}

StepResults take_outputs(Builder& builder) {
  std::vector<Value> outputs;
  for (const GraphOutput& output : builder.graph().outputs) outputs.push_back(builder.value(output.value));
  StepResults results = collect(builder.graph(), outputs);
  builder.graph().outputs.clear();
  return results;
}

void put_outputs(Builder& builder, const StepResults& results) {
  builder.output(results.numerator, {RoleKind::LossNumerator, "loss"});
  builder.output(results.denominator, {RoleKind::LossDenominator, "loss"});
  for (const auto& [role, value] : results.metrics) builder.output(value, role);
  for (const auto& [parameter, value] : results.gradients) builder.output(value, {RoleKind::Gradient, parameter});
  for (const auto& [state, value] : results.states) builder.output(value, {RoleKind::NewState, state});
}

Module finish_step(Module module, GraphId step) {
  order_inputs(module.graph(step));
  remove_dead_nodes(module.graph(step));
  const GraphId init = module.entry("init"), eval = module.entry("eval");
  module.entries = {{"init", init}, {"step", step}, {"eval", eval}};
  return prune_graphs(std::move(module));
}

}  // namespace stepgraph
