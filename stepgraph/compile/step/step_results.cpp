// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/step_results.h"

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

void set_denominator(LossTerm& term, RoleKind kind, Value value) {
  switch (kind) {
    case RoleKind::LossDenominatorWhole: term.is_whole = true; [[fallthrough]];
    case RoleKind::LossDenominator: term.sum = value; break;
    case RoleKind::LossDenominatorLeast: term.least = value; break;
    case RoleKind::LossDenominatorConstant: term.constant = value; break;
    default: throw InternalError("no loss denominator: " + std::string(name(kind)));
  }
}

StepResults collect(const Graph& graph, const std::vector<Value>& outputs) {
  StepResults results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Role& role = graph.outputs[i].role;
    switch (role.kind) {
      case RoleKind::LossNumerator: term_named(results.loss, loss_term(role)).numerator = outputs[i]; break;
      case RoleKind::LossDenominator:
      case RoleKind::LossDenominatorWhole:
      case RoleKind::LossDenominatorLeast:
      case RoleKind::LossDenominatorConstant: set_denominator(term_named(results.loss, loss_term(role)), role.kind, outputs[i]); break;
      case RoleKind::Metric:
      case RoleKind::MetricNumerator:
      case RoleKind::MetricDenominator: results.metrics.emplace_back(role, outputs[i]); break;
      case RoleKind::NewState: results.states.emplace_back(role.name, outputs[i]); break;
      case RoleKind::LearningRate: results.learning_rate = outputs[i]; break;
      case RoleKind::GradientNorm: results.gradient_norm = outputs[i]; break;
      case RoleKind::LossScale: results.loss_scale = outputs[i]; break;
      case RoleKind::Skipped: results.skipped = outputs[i]; break;
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
    builder.output(term.sum, {term.is_whole ? RoleKind::LossDenominatorWhole : RoleKind::LossDenominator, term.name});
    if (term.least) builder.output(*term.least, {RoleKind::LossDenominatorLeast, term.name});
    if (term.constant) builder.output(*term.constant, {RoleKind::LossDenominatorConstant, term.name});
  }
  for (const auto& [role, value] : results.metrics) builder.output(value, role);
  const std::pair<RoleKind, const std::optional<Value>&> numbers[] = {{RoleKind::LearningRate, results.learning_rate},
                                                                      {RoleKind::GradientNorm, results.gradient_norm},
                                                                      {RoleKind::LossScale, results.loss_scale},
                                                                      {RoleKind::Skipped, results.skipped},
                                                                      {RoleKind::GradientFactor, results.gradient_factor}};
  for (const auto& [kind, value] : numbers)
    if (value) builder.output(*value, {kind, ""});
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
