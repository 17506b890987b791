// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/train_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/capture/loss_role.h"
#include "stepgraph/compile/capture/micro_batches.h"
#include "stepgraph/compile/capture/needed.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {
namespace {

/// A term of the loss (loss_role.h).
struct LossParts {
  std::string name;
  std::optional<Value> numerator, sum, least, constant;

  std::optional<Value>& part(DenominatorPart which) { return which == DenominatorPart::Sum ? sum : which == DenominatorPart::Least ? least : constant; }
  Value denominator() const {
    const Value above = least ? maximum(*sum, *least) : *sum;
    return constant ? above + *constant : above;
  }
};

/// Outputs of the forward graph by role, at the place where they were computed.
struct ForwardResults {
  std::vector<LossParts> loss;
  std::vector<std::pair<Role, Value>> metrics;
  std::vector<std::pair<std::string, Value>> buffers;
  std::map<std::string, Value> gradients;  // that the model brings itself, by parameter
};

struct Trained {
  std::string name;
  Value parameter;
};

/// The loss and its gradients of the whole batch.
struct Differentiated {
  ForwardResults results;
  std::vector<OptimizedParameter> gradients;  // parameters without a gradient are not among them
};

LossParts& term_of(std::vector<LossParts>& loss, std::string_view name) {
  const auto found = std::find_if(loss.begin(), loss.end(), [&](const LossParts& term) { return term.name == name; });
  return found != loss.end() ? *found : loss.emplace_back(LossParts{std::string(name), {}, {}, {}, {}});
}

ForwardResults collect(const Graph& forward, const std::vector<Value>& outputs) {
  ForwardResults results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Role& role = forward.outputs[i].role;
    switch (role.kind) {
      case RoleKind::LossNumerator: term_of(results.loss, loss_term(role.name)).numerator = outputs[i]; break;
      case RoleKind::LossDenominator: term_of(results.loss, denominator_role(role.name).term).part(denominator_role(role.name).part) = outputs[i]; break;
      case RoleKind::Metric:
      case RoleKind::MetricNumerator:
      case RoleKind::MetricDenominator: results.metrics.emplace_back(role, outputs[i]); break;
      case RoleKind::NewState: results.buffers.emplace_back(role.name, outputs[i]); break;
      case RoleKind::Gradient: results.gradients.emplace(role.name, outputs[i]); break;
      default: break;
    }
  }
  for (const LossParts& term : results.loss)
    if (!term.numerator || !term.sum) throw UserError("entry forward: term " + term.name + " of the loss has no " + (term.numerator ? "loss_denominator" : "loss_numerator"));
  SG_CHECK(!results.loss.empty());
  return results;
}

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
  return where(equal(stopped, 0), zeros_like(stopped), reciprocal(stopped));
}

std::vector<bool> denominator_output(const Graph& forward) {
  std::vector<bool> outputs;
  for (const GraphOutput& output : forward.outputs) outputs.push_back(output.role.kind == RoleKind::LossDenominator);
  return outputs;
}

void check_loss(const Graph& forward) {
  for (const RoleKind kind : {RoleKind::LossNumerator, RoleKind::LossDenominator})
    if (std::none_of(forward.outputs.begin(), forward.outputs.end(), [&](const GraphOutput& output) { return output.role.kind == kind; }))
      throw UserError("entry forward has no output with the role " + std::string(name(kind)) + ", wanted loss_numerator and loss_denominator");
}

void check_denominator(const Module& module, const Graph& forward) {
  const std::vector<bool> needed = needed_inputs(module, forward, denominator_output(forward));
  for (size_t i = 0; i < needed.size(); ++i)
    if (needed[i] && forward.inputs[i].role.kind == RoleKind::Parameter)
      throw UserError("the loss denominator depends on parameter " + forward.inputs[i].role.name + "; it must depend on the batch alone");
}

/// That micro-batches can make up the loss and the gradients of the whole batch.
void check_parts(const Graph& forward) {
  for (const GraphOutput& output : forward.outputs) {
    if (output.role.kind == RoleKind::Gradient)
      throw UserError("micro_batches: the model brings its own gradients, of the mean over the whole batch, which cannot be made of parts; wanted micro_batches 1");
    if (output.role.kind == RoleKind::LossDenominator && output.role.name == whole_batch_denominator)
      throw UserError(
          "micro_batches: the loss of the model is not found to be made of sums over the rows of the batch, each as it is or divided by their number or by another "
          "sum over the batch (a mask, weights), so that it cannot be made of parts of a batch; wanted such a loss, or micro_batches 1");
  }
}

/// The gradient of the numerator: 1 / denominator, times the loss scale if there is one.
Value loss_gradient(Value denominator, const std::optional<Value>& scale) {
  const Value inverse = inverse_denominator(denominator);
  return scale ? inverse * *scale : inverse;
}

Differentiated differentiate_whole(Builder& builder, const Graph& forward, const std::vector<Value>& inputs, const std::vector<Trained>& trained,
                                   const std::optional<Value>& scale) {
  Differentiated found;
  found.results = collect(forward, builder.inline_graph(forward, inputs));
  if (!found.results.gradients.empty()) {
    for (const Trained& parameter : trained)
      if (const auto given = found.results.gradients.find(parameter.name); given != found.results.gradients.end())
        found.gradients.push_back({parameter.name, parameter.parameter, scale ? given->second * convert(*scale, given->second.dtype()) : given->second});
    return found;
  }
  std::vector<Value> numerators;
  std::vector<std::optional<Value>> seeds;
  for (const LossParts& term : found.results.loss) {
    numerators.push_back(*term.numerator);
    seeds.emplace_back(convert(loss_gradient(term.denominator(), scale), term.numerator->dtype()));
  }
  std::vector<Value> xs;
  for (const Trained& parameter : trained) xs.push_back(parameter.parameter);
  const auto all = gradients(builder, numerators, seeds, xs);
  for (size_t i = 0; i < trained.size(); ++i)
    if (all[i]) found.gradients.push_back({trained[i].name, trained[i].parameter, *all[i]});
  return found;
}

/// A Loop over the leading dim of the batch inputs, being put together: which values go in, and what they are inside.
class MicroBatchLoop {
 public:
  MicroBatchLoop(Builder& outer, const Graph& forward, const std::vector<Value>& inputs, int64_t micro_batches, const std::string& body_name)
      : outer_(outer), micro_batches_(micro_batches), body_id_(outer.module().add_graph(body_name)), body_(outer.module(), body_id_) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const GraphInput& input = forward.inputs[i];
      const Value inner = body_.input(forward.type(input.value));
      inside_.push_back(inner);
      (input.role.kind == RoleKind::Batch ? scanned_ : invariant_).emplace_back(inner, inputs[i]);
    }
  }
  Builder& body() { return body_; }
  const std::vector<Value>& inside() const { return inside_; }
  Value invariant(Value outside) {
    invariant_.emplace_back(body_.input(outside.type()), outside);
    return invariant_.back().first;
  }
  /// A carried value: `start` outside; inside it is returned here, and `next` must be given to carry().
  Value carried_input(const TensorType& type) { return body_.input(type); }
  void carry(Value inside, Value start, Value next) { carried_.push_back({inside, start, next}); }

  std::vector<Value> finish(const std::string& symbol) {
    Graph& graph = body_.graph();
    graph.inputs.clear();
    std::vector<Value> arguments;
    auto add = [&](Value inside, Value outside) {
      graph.inputs.push_back({inside.id, {}});
      arguments.push_back(outside);
    };
    for (const Carried& value : carried_) add(value.inside, value.start), body_.output(value.next);
    for (const auto& [inside, outside] : scanned_) add(inside, outside);
    std::vector<bool> read(graph.values.size());
    for (const Node& node : graph.nodes)
      for (ValueId input : node.inputs) read[static_cast<size_t>(input.index)] = true;
    for (const GraphOutput& output : graph.outputs) read[static_cast<size_t>(output.value.index)] = true;
    // A buffer is carried: it is an input already.
    for (const Carried& value : carried_) read[static_cast<size_t>(value.inside.id.index)] = false;
    for (const auto& [inside, outside] : invariant_)
      if (read[static_cast<size_t>(inside.id.index)]) add(inside, outside);
    // Inputs that nothing reads are gone: close the gaps in the ids.
    remove_dead_nodes(graph);
    Loop loop;
    loop.body = body_id_;
    loop.trip_count = micro_batches_;
    loop.symbol = symbol;
    loop.carried = static_cast<int64_t>(carried_.size());
    loop.scanned = static_cast<int64_t>(scanned_.size());
    return outer_.emit(loop, arguments);
  }

 private:
  struct Carried {
    Value inside, start, next;
  };
  Builder& outer_;
  int64_t micro_batches_;
  GraphId body_id_;
  Builder body_;
  std::vector<Value> inside_;
  std::vector<std::pair<Value, Value>> scanned_, invariant_;  // (inside, outside)
  std::vector<Carried> carried_;
};

constexpr const char* micro_batch_symbol = "micro_batch";

/// The terms of the whole batch without their numerators, known before the first backward.
std::vector<LossParts> whole_denominators(Builder& builder, const Graph& forward, const std::vector<Value>& inputs, int64_t micro_batches) {
  MicroBatchLoop loop(builder, forward, inputs, micro_batches, "loss_denominator");
  const std::vector<std::optional<Value>> inside(loop.inside().begin(), loop.inside().end());
  const std::vector<std::optional<Value>> outputs = inline_needed(loop.body(), forward, inside, denominator_output(forward));
  std::vector<DenominatorRole> roles;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) continue;
    roles.push_back(denominator_role(forward.outputs[i].role.name));
    const Value before = loop.carried_input(outputs[i]->type());
    // What counts once is that of any micro-batch.
    loop.carry(before, full(builder, before.dtype(), {}, 0), roles.back().part == DenominatorPart::Sum ? before + *outputs[i] : *outputs[i]);
  }
  const std::vector<Value> results = loop.finish(micro_batch_symbol);
  std::vector<LossParts> loss;
  for (size_t i = 0; i < roles.size(); ++i) term_of(loss, roles[i].term).part(roles[i].part) = results[i];
  return loss;
}

Differentiated differentiate_micro_batches(Builder& builder, GraphId forward_id, const std::vector<Value>& inputs, const std::vector<Trained>& trained,
                                           int64_t micro_batches, const std::optional<Value>& scale) {
  Module& module = builder.module();
  module.symbols.declare({micro_batch_symbol, SymbolKind::Iteration, 0, micro_batches - 1, 1, {}});
  const Graph& forward = module.graph(place_random_numbers(module, forward_id, micro_batch_symbol, micro_batches));
  std::vector<LossParts> loss = whole_denominators(builder, forward, inputs, micro_batches);

  MicroBatchLoop loop(builder, forward, inputs, micro_batches, "micro_batch");
  Builder& body = loop.body();
  const ForwardResults inner = collect(forward, body.inline_graph(forward, loop.inside()));
  std::vector<Value> numerators;
  std::vector<std::optional<Value>> seeds;
  for (const LossParts& term : inner.loss) {
    numerators.push_back(*term.numerator);
    seeds.emplace_back(convert(loop.invariant(loss_gradient(term_of(loss, term.name).denominator(), scale)), term.numerator->dtype()));
  }
  std::vector<Value> xs;
  for (const Trained& parameter : trained) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].id == parameter.parameter.id) xs.push_back(loop.inside()[i]);
  }
  SG_CHECK(xs.size() == trained.size());
  const auto all = gradients(body, numerators, seeds, xs);

  // Carried: the sums, and the buffers in order of the micro-batches.
  Differentiated found;
  auto carry_sum = [&](Value addend, DType dtype) {
    const Value wide = convert(addend, dtype);
    const Value sum = loop.carried_input(wide.type());
    loop.carry(sum, full(builder, dtype, wide.shape(), 0), sum + wide);
  };
  for (size_t i = 0; i < trained.size(); ++i) {
    if (!all[i]) continue;
    found.gradients.push_back({trained[i].name, trained[i].parameter, {}});
    carry_sum(*all[i], all[i]->dtype() == DType::F64 ? DType::F64 : DType::F32);
  }
  for (const Value& numerator : numerators) carry_sum(numerator, numerator.dtype());
  for (const auto& [metric, value] : inner.metrics) carry_sum(value, value.dtype());
  for (const auto& [buffer, value] : inner.buffers) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (forward.inputs[i].role.kind == RoleKind::Buffer && forward.inputs[i].role.name == buffer) loop.carry(loop.inside()[i], inputs[i], value);
  }
  const std::vector<Value> results = loop.finish(micro_batch_symbol);
  size_t next = 0;
  for (OptimizedParameter& parameter : found.gradients) parameter.gradient = results[next++];
  for (const LossParts& term : inner.loss) term_of(loss, term.name).numerator = results[next++];
  found.results.loss = std::move(loss);
  for (const auto& [metric, value] : inner.metrics) found.results.metrics.emplace_back(metric, results[next++]);
  for (const auto& [buffer, value] : inner.buffers) found.results.buffers.emplace_back(buffer, results[next++]);
  return found;
}

/// The loss as one quotient.
std::pair<Value, Value> quotient(Builder& builder, const std::vector<LossParts>& loss) {
  if (loss.size() == 1) return {*loss[0].numerator, loss[0].denominator()};
  std::optional<Value> total;
  for (const LossParts& term : loss) {
    const Value part = *term.numerator * inverse_denominator(term.denominator());
    total = total ? *total + part : part;
  }
  return {*total, scalar(builder, total->dtype(), 1)};
}

/// One norm over every element of every gradient, once, in f32 (f64 where a gradient is); a norm that is not finite makes the gradients NaN, never zero
/// or of another sign.
Value clip(Builder& builder, std::vector<OptimizedParameter>& parameters, double clip_norm) {
  const bool has_f64 = std::any_of(parameters.begin(), parameters.end(), [](const OptimizedParameter& p) { return p.gradient.dtype() == DType::F64; });
  const DType wide = has_f64 ? DType::F64 : DType::F32;
  Value squares = full(builder, wide, {}, 0);
  for (const OptimizedParameter& parameter : parameters) {
    const Value gradient = convert(parameter.gradient, wide);
    squares = squares + sum(gradient * gradient);
  }
  const Value norm = sqrt(squares);
  const Value factor = where(is_finite(norm), clamp(clip_norm / (norm + 1e-6), std::nullopt, 1.0),
                             full_like(norm, std::numeric_limits<double>::quiet_NaN()));
  for (OptimizedParameter& parameter : parameters) {
    const DType dtype = parameter.gradient.dtype();
    parameter.gradient = convert(convert(parameter.gradient, wide) * factor, dtype);
  }
  return norm;
}

/// Optimizer state starts with zero, but for what is named in `starts`.
void extend_init(Module& module, const Graph& step, const std::map<std::string, double>& starts) {
  Builder builder(module, module.entry("init"));
  for (const GraphInput& input : step.inputs) {
    if (input.role.kind != RoleKind::OptimizerState) continue;
    builder.set_scope(input.role.name);
    const TensorType type = step.type(input.value);
    const auto start = starts.find(input.role.name);
    builder.output(full(builder, type.dtype, type.shape, start == starts.end() ? 0 : start->second), {RoleKind::NewState, input.role.name});
  }
}

/// Parameters, buffers, optimizer state, batch, seed, step.
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

/// "w" and its "w.exp_avg" beside a parameter that is named so: one of them would be lost.
void check_state_names(const Graph& step) {
  std::set<std::string> names;
  for (const GraphInput& input : step.inputs)
    if (is_state(input.role.kind) && !names.insert(input.role.name).second)
      throw UserError("state " + input.role.name + " of the optimizer has the name of a parameter or buffer of the model");
}

}  // namespace

Module train_step(Module module, const Optimizer& optimizer, const StepOptions& options) {
  check(optimizer);
  if (options.micro_batches < 1) throw UserError("micro_batches: found " + std::to_string(options.micro_batches) + ", wanted at least 1");
  if (options.clip_norm && !(*options.clip_norm > 0 && std::isfinite(*options.clip_norm))) throw UserError("clip_norm: wanted a positive number");
  check(options.loss_scale);
  const GraphId forward_id = module.entry("forward");
  check_loss(module.graph(forward_id));
  check_denominator(module, module.graph(forward_id));
  if (options.micro_batches > 1) check_parts(module.graph(forward_id));
  const GraphId step_id = module.add_graph("step");
  Builder builder(module, step_id);
  std::vector<Value> inputs;
  for (const GraphInput& input : module.graph(forward_id).inputs) {
    TensorType type = module.graph(forward_id).type(input.value);
    Role role = input.role;
    if (role.kind == RoleKind::Batch && options.micro_batches > 1) {
      type.shape.insert(type.shape.begin(), options.micro_batches);
      role.batch_dim = 1;
    }
    inputs.push_back(builder.input(std::move(type), role));
  }
  auto special = [&](RoleKind kind) {
    if (auto found = find_input(builder.graph(), kind)) return builder.value(*found);
    return builder.input({DType::I64, {}, {}}, {kind, std::string(name(kind))});
  };
  special(RoleKind::Seed);
  const Value step = special(RoleKind::Step);

  const std::vector<Trained> trained = trained_parameters(builder, optimizer);
  std::optional<LossScaler> scaler;
  if (options.loss_scale.kind == LossScale::Kind::Constant || options.loss_scale.kind == LossScale::Kind::Dynamic) scaler.emplace(builder, options.loss_scale);
  const std::optional<Value> scale = scaler ? std::optional<Value>(scaler->scale()) : std::nullopt;
  Differentiated found = options.micro_batches == 1
                             ? differentiate_whole(builder, module.graph(forward_id), inputs, trained, scale)
                             : differentiate_micro_batches(builder, forward_id, inputs, trained, options.micro_batches, scale);
  builder.set_place({});
  builder.set_scope("loss_scale");
  if (scaler) scaler->unscale(found.gradients);
  builder.set_scope("clip");
  std::optional<Value> norm;
  if (options.clip_norm) norm = clip(builder, found.gradients, *options.clip_norm);
  builder.set_scope("optimizer");
  std::vector<StateUpdate> updates = apply_optimizer(optimizer, found.gradients, step, scaler ? std::optional<Value>(scaler->applied()) : std::nullopt);
  check_state_names(builder.graph());
  builder.set_scope("loss_scale");
  if (scaler) scaler->select(updates);

  const auto [numerator, denominator] = quotient(builder, found.results.loss);
  builder.output(numerator, {RoleKind::LossNumerator, "loss"});
  builder.output(denominator, {RoleKind::LossDenominator, "loss"});
  for (const auto& [role, value] : found.results.metrics) builder.output(value, role);
  if (norm) builder.output(*norm, {RoleKind::Metric, "gradient_norm"});
  builder.output(learning_rate(optimizer.rate, step), {RoleKind::Metric, "learning_rate"});
  if (scaler) builder.output(scaler->scale(), {RoleKind::Metric, "loss_scale"});
  if (scaler) builder.output(convert(logical_not(scaler->finite()), DType::F32), {RoleKind::Metric, "skipped"});
  if (options.gradients_as_outputs)
    for (const OptimizedParameter& parameter : found.gradients) builder.output(parameter.gradient, {RoleKind::Gradient, parameter.name});
  for (const StateUpdate& update : updates) builder.output(update.value, {RoleKind::NewState, update.name});
  for (const auto& [buffer, value] : found.results.buffers) builder.output(value, {RoleKind::NewState, buffer});

  Graph& graph = module.graph(step_id);
  order_inputs(graph);
  remove_dead_nodes(graph);
  extend_init(module, graph, starts(options.loss_scale));
  const GraphId init = module.entry("init"), eval = module.entry("eval");
  module.entries = {{"init", init}, {"step", step_id}, {"eval", eval}};
  return prune_graphs(std::move(module));
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

Module train_step(const std::vector<InputSpec>& inputs, const ModelFunction& model, const Optimizer& optimizer, const StepOptions& options,
                  const CaptureOptions& capture_options) {
  StepOptions resolved = options;
  if (resolved.loss_scale.kind == LossScale::Kind::Automatic && capture_options.autocast.dtype == DType::F16) resolved.loss_scale.kind = LossScale::Kind::Dynamic;
  return train_step(capture(inputs, model, capture_options), optimizer, resolved);
}

}  // namespace stepgraph
