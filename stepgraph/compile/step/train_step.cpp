// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/train_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/autodiff/needed.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/step/map_gradients.h"
#include "stepgraph/compile/step/step_results.h"

namespace stepgraph {
namespace {

struct Trained {
  std::string name;
  Value parameter;
};

std::vector<Trained> trained_parameters(Builder& builder, const Optimizer& optimizer) {
  std::vector<Trained> trained;
  std::vector<std::string> names;
  for (const GraphInput& input : builder.graph().inputs)
    if (input.role.kind == RoleKind::Parameter) names.push_back(input.role.name);
  check_patterns(optimizer, names);
  for (const GraphInput& input : builder.graph().inputs)
    if (input.role.kind == RoleKind::Parameter && !is_frozen(optimizer, input.role.name)) trained.push_back({input.role.name, builder.value(input.value)});
  return trained;
}

/// 1 / denominator; 0 for a batch without any valid element, so that its gradient is zero and not NaN.
Value inverse_denominator(Value denominator) {
  const Value stopped = stop_gradient(denominator);
  // One after the other: the order of arguments is the compiler's choice, and the order of nodes must not be.
  const Value inverse = reciprocal(stopped), zero = zeros_like(stopped);
  return where(equal(stopped, 0), zero, inverse);
}

void check_loss(const Graph& forward) {
  std::set<std::string_view> numerators, denominators;
  for (const GraphOutput& output : forward.outputs) {
    if (output.role.kind == RoleKind::LossNumerator) numerators.insert(loss_term(output.role));
    const bool is_sum = output.role.kind == RoleKind::LossDenominator || output.role.kind == RoleKind::LossDenominatorWhole;
    if (is_sum && !denominators.insert(loss_term(output.role)).second)
      throw UserError("entry forward: term '" + std::string(loss_term(output.role)) + "' of the loss has two denominators");
  }
  for (const auto& [found, kind] : {std::pair(&numerators, RoleKind::LossNumerator), std::pair(&denominators, RoleKind::LossDenominator)})
    if (found->empty()) throw UserError("entry forward has no output with the role " + std::string(name(kind)) + ", wanted loss_numerator and loss_denominator");
  for (const GraphOutput& output : forward.outputs) {
    if (output.role.kind != RoleKind::LossNumerator && !is_loss_denominator(output.role.kind)) continue;
    const std::string_view term = loss_term(output.role);
    if (!numerators.contains(term) || !denominators.contains(term))
      throw UserError("entry forward: term '" + std::string(term) + "' of the loss has no " +
                      (numerators.contains(term) ? "loss_denominator" : "loss_numerator") + " of that name");
  }
}

/// What a model may take and give: the rest is for passes to add.
void check_roles(const Graph& forward, const Graph& eval) {
  for (const GraphOutput& output : eval.outputs)
    if (output.role.kind == RoleKind::NewState) throw UserError("entry eval replaces state '" + output.role.name + "'; wanted none: an evaluation changes nothing");
  const auto refuse = [](const Role& role, const char* what, const std::string& why) {
    throw UserError("entry forward has an " + std::string(what) + " of role " + std::string(name(role.kind)) +
                    (role.name.empty() ? "" : " '" + role.name + "'") + why);
  };
  std::set<std::string_view> buffers;
  for (const GraphInput& input : forward.inputs) {
    if (input.role.kind == RoleKind::LossGradient || input.role.kind == RoleKind::OptimizerState) refuse(input.role, "input", ", which training adds");
    if (input.role.kind == RoleKind::Buffer) buffers.insert(input.role.name);
  }
  for (const GraphOutput& output : forward.outputs) {
    const Role& role = output.role;
    if ((role.kind >= RoleKind::LearningRate && role.kind <= RoleKind::GradientFactor) || role.kind == RoleKind::Tap) refuse(role, "output", ", which training adds");
    if (role.kind == RoleKind::NewState && !buffers.contains(role.name)) refuse(role, "output", ", which is no buffer: parameters are the optimizer's");
    if (role.kind == RoleKind::Metric || role.kind == RoleKind::MetricNumerator) check_metric_name(role.name, {});
  }
}

void check_denominator(const Module& module, const Graph& forward) {
  std::vector<bool> outputs;
  for (const GraphOutput& output : forward.outputs) outputs.push_back(is_loss_denominator(output.role.kind));
  const std::vector<bool> needed = needed_inputs(module, forward, outputs);
  for (size_t i = 0; i < needed.size(); ++i)
    if (needed[i] && forward.inputs[i].role.kind == RoleKind::Parameter)
      throw UserError("the loss denominator depends on parameter " + forward.inputs[i].role.name + "; it must depend on the batch alone");
}

/// The gradient of the numerator: 1 / denominator, times the loss scale if there is one.
Value loss_gradient(Value denominator, const std::optional<Value>& scale) {
  const Value inverse = inverse_denominator(denominator);
  return scale ? inverse * *scale : inverse;
}

using NamedGradients = std::vector<std::pair<std::string, Value>>;

/// Those that the model brings, of trained parameters.
NamedGradients given_gradients(const NamedGradients& given, const std::vector<Trained>& trained) {
  NamedGradients found;
  for (const Trained& parameter : trained)
    for (const auto& [name, gradient] : given)
      if (name == parameter.name) found.emplace_back(name, gradient);
  return found;
}

/// Of the numerators, each times its input. Parameters without a gradient are not among them.
NamedGradients derived_gradients(Builder& builder, const std::vector<LossTerm>& loss, const std::vector<Trained>& trained) {
  std::vector<Value> numerators;
  std::vector<std::optional<Value>> seeds;
  for (const LossTerm& term : loss) {
    numerators.push_back(term.numerator);
    seeds.emplace_back(builder.input(term.numerator.type(), {RoleKind::LossGradient, term.name}));
  }
  std::vector<Value> xs;
  for (const Trained& parameter : trained) xs.push_back(parameter.parameter);
  const auto all = gradients(builder, numerators, seeds, xs);
  NamedGradients found;
  for (size_t i = 0; i < trained.size(); ++i)
    if (all[i]) found.emplace_back(trained[i].name, *all[i]);
  return found;
}

/// What reads one of the inputs reads its value instead. Nodes of the values were appended from `first_new` on: they move before the first reader.
void replace_inputs(Builder& builder, const std::map<ValueId, Value>& values, size_t first_new, StepResults& results) {
  Graph& graph = builder.graph();
  const auto replace = [&](ValueId& id) {
    if (const auto value = values.find(id); value != values.end()) id = value->second.id;
  };
  const auto appended = graph.nodes.begin() + static_cast<std::ptrdiff_t>(first_new);
  const auto reader = std::find_if(graph.nodes.begin(), appended, [&](const Node& node) {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return values.contains(id); });
  });
  const auto place = static_cast<int32_t>(reader - graph.nodes.begin());
  for (auto node = appended; node != graph.nodes.end(); ++node)
    for (const ValueId read : node->inputs) {
      const int32_t producer = graph.values[at(read)].node;
      SG_CHECK(producer < place || producer >= static_cast<int32_t>(first_new), "the loss denominator is made behind the backward that needs it");
    }
  for (auto node = reader; node != appended; ++node) std::for_each(node->inputs.begin(), node->inputs.end(), replace);
  for (auto& [parameter, gradient] : results.gradients) replace(gradient.id);
  std::rotate(reader, appended, graph.nodes.end());
  number_producers(graph);
  std::erase_if(graph.inputs, [&](const GraphInput& candidate) { return values.contains(candidate.value); });
}

/// The loss as one quotient.
LossTerm quotient(const std::vector<LossTerm>& loss, const std::vector<Value>& denominators) {
  LossTerm whole{"loss", loss[0].numerator, denominators[0]};
  if (loss.size() == 1) return whole;
  for (size_t i = 0; i < loss.size(); ++i) {
    const Value part = loss[i].numerator * inverse_denominator(denominators[i]);
    whole.numerator = i == 0 ? part : whole.numerator + part;
  }
  whole.sum = scalar(*whole.numerator.builder, whole.numerator.dtype(), 1);
  return whole;
}

std::vector<OptimizedParameter> optimized_parameters(Builder& builder, const NamedGradients& gradients) {
  std::map<std::string_view, ValueId> values;
  for (const GraphInput& input : builder.graph().inputs)
    if (input.role.kind == RoleKind::Parameter) values.emplace(input.role.name, input.value);
  std::vector<OptimizedParameter> parameters;
  for (const auto& [name, gradient] : gradients) {
    const auto parameter = values.find(name);
    if (parameter == values.end()) throw UserError("entry step has a gradient of " + name + ", which is no parameter of it");
    parameters.push_back({name, builder.value(parameter->second), gradient});
  }
  return parameters;
}
void set_gradients(StepResults& results, const std::vector<OptimizedParameter>& parameters) {
  results.gradients.clear();
  for (const OptimizedParameter& parameter : parameters) results.gradients.emplace_back(parameter.name, parameter.gradient);
}

struct Clipping {
  Value norm, factor;  // f32, or f64 where a gradient is
};

/// One norm over every element of every gradient, once. A norm that is not finite makes the factor NaN, and so the gradients; never zero or of another sign.
Clipping clipping(Builder& builder, std::vector<OptimizedParameter>& parameters, double clip_norm) {
  const bool has_f64 = std::any_of(parameters.begin(), parameters.end(), [](const OptimizedParameter& p) { return p.gradient.dtype() == DType::F64; });
  const DType wide = has_f64 ? DType::F64 : DType::F32;
  const auto sums = map_gradients(parameters, {"squares", {}, false, 1}, [wide](const Value& gradient, const std::vector<Value>&) -> std::vector<Value> {
    const Value g = convert(gradient, wide);
    return {g * g};
  });
  Value squares = full(builder, wide, {}, 0);
  for (const std::vector<Value>& sum : sums) squares = squares + sum[0];
  const Value norm = sqrt(squares);
  const Value undefined = full_like(norm, std::numeric_limits<double>::quiet_NaN());
  const Value bounded = clamp(clip_norm / (norm + 1e-6), std::nullopt, 1.0);
  const Value factor = where(is_finite(norm), bounded, undefined);
  return {norm, factor};
}

/// State that `init` does not give yet starts with zero, but for what is named in `starts`.
void extend_init(Module& module, const Graph& step, const std::map<std::string, double>& starts) {
  Builder builder(module, module.entry("init"));
  std::set<std::string> given;
  for (const GraphOutput& output : builder.graph().outputs) given.insert(output.role.name);
  for (const GraphInput& input : step.inputs) {
    if (input.role.kind != RoleKind::OptimizerState || given.count(input.role.name)) continue;
    builder.set_scope(input.role.name);
    const TensorType type = step.type(input.value);
    const auto start = starts.find(input.role.name);
    builder.output(full(builder, type.dtype, type.shape, start == starts.end() ? 0 : start->second), {RoleKind::NewState, input.role.name});
  }
}

/// "w" and its "w.exp_avg" beside a parameter or buffer, of any entry, that is named so: one of them would be lost.
void check_state_names(const Graph& step, const StateTable& states) {
  std::set<std::string_view> names;
  for (const GraphInput& input : step.inputs) {
    if (!is_state(input.role.kind)) continue;
    const StateInfo* state = states.find(input.role.name);
    if (!names.insert(input.role.name).second || (state && state->role != input.role.kind))
      throw UserError("state " + input.role.name + " of the optimizer has the name of a parameter or buffer of the model");
  }
}

}  // namespace

void check(const StepOptions& options) {
  if (options.micro_batches < 1) throw UserError("micro_batches: found " + std::to_string(options.micro_batches) + ", wanted at least 1");
  if (options.clip_norm && !(*options.clip_norm > 0 && std::isfinite(*options.clip_norm))) throw UserError("clip_norm: wanted a positive number");
  check(options.loss_scale);
}

Module differentiate(Module module, const Optimizer& optimizer) {
  const Graph& forward = module.graph(module.entry("forward"));
  check_roles(forward, module.graph(module.entry("eval")));
  check_loss(forward);
  check_denominator(module, forward);
  const GraphId step_id = module.add_graph("step");
  Builder builder(module, step_id);
  std::vector<Value> inputs;
  for (const GraphInput& input : forward.inputs) inputs.push_back(builder.input(forward.type(input.value), input.role));
  for (const RoleKind kind : {RoleKind::Seed, RoleKind::Step})
    if (!find_input(builder.graph(), kind)) builder.input({DType::I64, {}, {}}, {kind, std::string(name(kind))});
  const std::vector<Trained> trained = trained_parameters(builder, optimizer);
  builder.set_phase(Phase::Forward);
  StepResults results = collect(forward, builder.inline_graph(forward, inputs));
  builder.set_phase(Phase::Backward);
  results.gradients = results.gradients.empty() ? derived_gradients(builder, results.loss, trained) : given_gradients(results.gradients, trained);
  put_outputs(builder, results);
  for (Node& node : module.graph(module.entry("eval")).nodes) node.phase = Phase::Evaluation;
  return finish_step(std::move(module), step_id);
}

Module scale_loss(Module module, const LossScale& options) {
  const GraphId step_id = module.entry("step");
  Builder builder(module, step_id);
  const size_t first_new = builder.graph().nodes.size();
  StepResults results = take_outputs(builder);
  builder.set_phase(Phase::Backward);
  std::optional<LossScaler> scaler;
  if (options.kind == LossScale::Kind::Constant || options.kind == LossScale::Kind::Dynamic) scaler.emplace(builder, options);
  const std::optional<Value> scale = scaler ? std::optional<Value>(scaler->scale()) : std::nullopt;
  std::vector<Value> denominators;
  for (const LossTerm& term : results.loss) denominators.push_back(term.denominator());
  std::map<ValueId, Value> loss_gradients;
  for (size_t i = 0; i < results.loss.size(); ++i)
    if (const auto input = find_input(builder.graph(), RoleKind::LossGradient, results.loss[i].name))
      loss_gradients.emplace(*input, convert(loss_gradient(denominators[i], scale), builder.graph().type(*input).dtype));
  if (!loss_gradients.empty()) {
    replace_inputs(builder, loss_gradients, first_new, results);
  } else if (scale) {
    for (auto& [parameter, gradient] : results.gradients) gradient = gradient * convert(*scale, gradient.dtype());
  }
  builder.set_phase(Phase::Forward);
  results.loss = {quotient(results.loss, denominators)};
  if (scaler) {
    builder.set_phase(Phase::Update);
    builder.set_scope("loss_scale");
    std::vector<OptimizedParameter> parameters = optimized_parameters(builder, results.gradients);
    scaler->unscale(parameters);
    set_gradients(results, parameters);
    results.loss_scale = scaler->scale();
    results.skipped = convert(logical_not(scaler->finite()), DType::F32);
    for (const StateUpdate& update : scaler->own_state()) results.states.emplace_back(update.name, update.value);
  }
  put_outputs(builder, results);
  extend_init(module, builder.graph(), starts(options));
  return finish_step(std::move(module), step_id);
}

Module clip_gradients(Module module, std::optional<double> clip_norm) {
  if (!clip_norm) return module;
  const GraphId step_id = module.entry("step");
  Builder builder(module, step_id);
  builder.set_phase(Phase::Update);
  builder.set_scope("clip");
  StepResults results = take_outputs(builder);
  std::vector<OptimizedParameter> parameters = optimized_parameters(builder, results.gradients);
  const Clipping found = clipping(builder, parameters, *clip_norm);
  results.gradient_norm = found.norm;
  results.gradient_factor = found.factor;
  put_outputs(builder, results);
  return finish_step(std::move(module), step_id);
}

Module update_parameters(Module module, const Optimizer& optimizer, bool gradients_as_outputs) {
  const GraphId step_id = module.entry("step");
  Builder builder(module, step_id);
  builder.set_phase(Phase::Update);
  builder.set_scope("optimizer");
  StepResults results = take_outputs(builder);
  const Value step = builder.value(*find_input(builder.graph(), RoleKind::Step));
  std::vector<OptimizedParameter> parameters = optimized_parameters(builder, results.gradients);
  std::optional<Value> factor = std::exchange(results.gradient_factor, std::nullopt);
  // The optimizer multiplies on its way, unless others see the gradients.
  if (factor && gradients_as_outputs) {
    map_gradients(parameters, {"clip", {*factor}, true}, [](const Value& g, const auto& shared) -> std::vector<Value> { return {times_factor(g, shared[0])}; });
    factor.reset();
    set_gradients(results, parameters);
  }
  std::vector<StateUpdate> updates = apply_optimizer(optimizer, parameters, step, applied_steps(builder), factor);
  check_state_names(builder.graph(), module.states);
  if (results.skipped) keep_if_skipped(builder, *results.skipped, updates);
  results.learning_rate = learning_rate(optimizer.rate, step);
  if (!gradients_as_outputs) results.gradients.clear();
  for (const StateUpdate& update : updates) results.states.emplace_back(update.name, update.value);
  put_outputs(builder, results);
  extend_init(module, builder.graph(), {});
  return finish_step(std::move(module), step_id);
}

TrainedParameters trained_parameters(const Module& module, const Optimizer& optimizer) {
  const Graph& step = module.graph(module.entry("step"));
  std::set<std::string_view> moved;
  for (const GraphOutput& output : step.outputs)
    if (output.role.kind == RoleKind::NewState) moved.insert(output.role.name);
  TrainedParameters parameters;
  for (const GraphInput& input : step.inputs) {
    if (input.role.kind != RoleKind::Parameter) continue;
    const std::string& parameter = input.role.name;
    (moved.count(parameter) ? parameters.trained : is_frozen(optimizer, parameter) ? parameters.frozen : parameters.unreached).push_back(parameter);
  }
  return parameters;
}

}  // namespace stepgraph
