// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/step_results.h"

#include <algorithm>

#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

Value LossTerm::denominator() const {
  const Value above = least ? maximum(sum, *least) : sum;
  return constant ? above + *constant : above;
}

LossTerm& term_named(std::vector<LossTerm>& loss, std::string_view name) {
  const auto found = std::find_if(loss.begin(), loss.end(), [&](const LossTerm& term) { return term.name == name; });
  if (found != loss.end()) return *found;
  loss.emplace_back().name = name;
  return loss.back();
}

void set_denominator(LossTerm& term, DenominatorPart part, Value value) {
  switch (part) {
    case DenominatorPart::Sum: term.sum = value; break;
    case DenominatorPart::Least: term.least = value; break;
    case DenominatorPart::Constant: term.constant = value; break;
  }
}

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
      case RoleKind::LossNumerator: term_named(results.loss, loss_term(role.name)).numerator = outputs[i]; break;
      case RoleKind::LossDenominator: {
        const auto [of_term, part] = denominator_role(role.name);
        LossTerm& term = term_named(results.loss, of_term);
        set_denominator(term, part, outputs[i]);
        term.is_whole |= role.name == whole_batch_denominator;
        break;
      }
      case RoleKind::Metric:
      case RoleKind::MetricNumerator:
      case RoleKind::MetricDenominator: results.metrics.emplace_back(role, outputs[i]); break;
      case RoleKind::NewState: results.states.emplace_back(role.name, outputs[i]); break;
      case RoleKind::GradientFactor: results.gradient_factor = outputs[i]; break;
      case RoleKind::Gradient: results.gradients.emplace_back(role.name, outputs[i]); break;
      default: break;
    }
  }
  SG_CHECK(!results.loss.empty(), "a training step without a loss");
  for (const LossTerm& term : results.loss) SG_CHECK(term.numerator.builder && term.sum.builder, "term " + term.name + " of the loss is no quotient");
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
  for (const LossTerm& term : results.loss) {
    builder.output(term.numerator, {RoleKind::LossNumerator, term.name});
    builder.output(term.sum, {RoleKind::LossDenominator, term.is_whole ? std::string(whole_batch_denominator) : term.name});
    if (term.least) builder.output(*term.least, {RoleKind::LossDenominator, term.name + ".least"});
    if (term.constant) builder.output(*term.constant, {RoleKind::LossDenominator, term.name + ".constant"});
  }
  for (const auto& [role, value] : results.metrics) builder.output(value, role);
  if (results.gradient_factor) builder.output(*results.gradient_factor, {RoleKind::GradientFactor, ""});
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
