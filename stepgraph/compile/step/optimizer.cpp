// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/optimizer.h"

#include <cmath>
#include <map>
#include <tuple>

#include <fmt/core.h>

#include "stepgraph/base/nearest.h"
#include "stepgraph/base/pattern.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/step/adafactor.h"

namespace stepgraph {

std::string_view name(Optimizer::Kind kind) {
  switch (kind) {
    case Optimizer::Kind::Sgd: return "sgd";
    case Optimizer::Kind::Adam: return "adam";
    case Optimizer::Kind::AdamW: return "adamw";
    case Optimizer::Kind::Lion: return "lion";
    case Optimizer::Kind::Rmsprop: return "rmsprop";
    case Optimizer::Kind::Adagrad: return "adagrad";
    case Optimizer::Kind::Adafactor: return "adafactor";
  }
  throw InternalError("optimizer: unknown kind");
}

void check(const Optimizer& optimizer) {
  const auto wanted = [](bool good, const char* what, double found, const char* range) {
    if (!good) throw UserError(fmt::format("optimizer: {} is {}, wanted {}", what, found, range));
  };
  const auto not_negative = [](double x) { return x >= 0 && std::isfinite(x); };
  const auto fraction = [](double x) { return x >= 0 && x < 1; };
  check(optimizer.rate);
  wanted(not_negative(optimizer.weight_decay), "weight decay", optimizer.weight_decay, "a number of at least 0");
  wanted(not_negative(optimizer.momentum), "momentum", optimizer.momentum, "a number of at least 0");
  wanted(std::isfinite(optimizer.dampening), "dampening", optimizer.dampening, "a finite number");
  if (optimizer.nesterov && (optimizer.momentum == 0 || optimizer.dampening != 0))
    throw UserError("optimizer: nesterov wants a momentum above 0 and a dampening of 0");
  wanted(fraction(optimizer.beta1), "beta1", optimizer.beta1, "a number in [0, 1)");
  wanted(fraction(optimizer.beta2), "beta2", optimizer.beta2, "a number in [0, 1)");
  wanted(not_negative(optimizer.epsilon), "epsilon", optimizer.epsilon, "a number of at least 0");
  wanted(fraction(optimizer.alpha), "alpha", optimizer.alpha, "a number in [0, 1)");
  wanted(not_negative(optimizer.rate_decay), "rate decay", optimizer.rate_decay, "a number of at least 0");
  wanted(optimizer.beta2_decay <= 0 && std::isfinite(optimizer.beta2_decay), "beta2 decay", optimizer.beta2_decay, "a number of at most 0");
  wanted(optimizer.clip_threshold >= 1 && std::isfinite(optimizer.clip_threshold), "clip threshold", optimizer.clip_threshold, "a number of at least 1");
  wanted(not_negative(optimizer.minimum_scale), "minimum scale", optimizer.minimum_scale, "a number of at least 0");
  if (optimizer.ema_decay) wanted(fraction(*optimizer.ema_decay), "ema decay", *optimizer.ema_decay, "a number in [0, 1)");
  for (const ParameterGroup& group : optimizer.groups) {
    if (group.patterns.empty()) throw UserError("optimizer: a parameter group has no patterns");
    wanted(not_negative(group.rate_factor), "rate factor of a group", group.rate_factor, "a number of at least 0");
    if (group.weight_decay) wanted(not_negative(*group.weight_decay), "weight decay of a group", *group.weight_decay, "a number of at least 0");
  }
}

namespace {

struct Treatment {
  double rate_factor = 1, weight_decay = 0;
  bool frozen = false;
  bool operator==(const Treatment&) const = default;
};

Treatment treatment_of(const Optimizer& optimizer, std::string_view name) {
  Treatment result{1, optimizer.weight_decay, false};
  for (const std::string& pattern : optimizer.no_decay)
    if (matches(pattern, name)) result.weight_decay = 0;
  for (const ParameterGroup& group : optimizer.groups)
    for (const std::string& pattern : group.patterns) {
      if (!matches(pattern, name)) continue;
      result.rate_factor = group.rate_factor;
      if (group.weight_decay) result.weight_decay = *group.weight_decay;
      result.frozen = group.frozen;
      return result;
    }
  return result;
}

/// `list` is a member of `optimizer` that holds `pattern`.
void check_pattern(const Optimizer& optimizer, std::vector<std::string>& list, size_t index, std::string_view what, std::span<const std::string> parameters) {
  const std::string pattern = list[index];
  std::vector<std::string_view> matched;
  std::vector<Treatment> with;
  for (const std::string& parameter : parameters)
    if (matches(pattern, parameter)) matched.push_back(parameter), with.push_back(treatment_of(optimizer, parameter));
  if (matched.empty())
    throw UserError(fmt::format("optimizer: {}pattern '{}' matches no parameter; nearest are {}", what, pattern, nearest_names(pattern, parameters)));
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
  bool changes = false;
  for (size_t i = 0; i < matched.size(); ++i) changes = changes || !(treatment_of(optimizer, matched[i]) == with[i]);
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(index), pattern);
  if (!changes)
    throw UserError(
        fmt::format("optimizer: {}pattern '{}' changes nothing: {} is treated alike without it, {}", what, pattern, matched[0],
                    with[0].frozen ? "frozen" : fmt::format("with a rate factor of {} and a weight decay of {}", with[0].rate_factor, with[0].weight_decay)));
}

/// Parameters that one MapTensors updates.
struct Group {
  DType parameter, gradient;
  Treatment treatment;
  std::vector<size_t> members;
};

std::vector<Group> group_parameters(const Optimizer& optimizer, const std::vector<OptimizedParameter>& parameters) {
  std::vector<Group> groups;
  std::map<std::tuple<DType, DType, double, double>, size_t> known;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Treatment treatment = treatment_of(optimizer, parameters[i].name);
    if (treatment.frozen) continue;
    const DType parameter = parameters[i].parameter.dtype(), gradient = parameters[i].gradient.dtype();
    const auto [place, fresh] = known.try_emplace({parameter, gradient, treatment.rate_factor, treatment.weight_decay}, groups.size());
    if (fresh) groups.push_back({parameter, gradient, treatment, {}});
    groups[place->second].members.push_back(i);
  }
  return groups;
}

/// State of a parameter that the kind of optimizer keeps; Adafactor's is of other shapes (adafactor.h).
std::vector<std::string> state_names(const Optimizer& optimizer) {
  std::vector<std::string> names;
  switch (optimizer.kind) {
    case Optimizer::Kind::Sgd:
      if (optimizer.momentum != 0) names = {"momentum_buffer"};
      break;
    case Optimizer::Kind::Adam:
    case Optimizer::Kind::AdamW: names = {"exp_avg", "exp_avg_sq"}; break;
    case Optimizer::Kind::Lion: names = {"exp_avg"}; break;
    case Optimizer::Kind::Rmsprop:
      names = {"square_avg"};
      if (optimizer.centered) names.emplace_back("grad_avg");
      if (optimizer.momentum != 0) names.emplace_back("momentum_buffer");
      break;
    case Optimizer::Kind::Adagrad: names = {"sum"}; break;
    case Optimizer::Kind::Adafactor: break;
  }
  if (optimizer.ema_decay) names.emplace_back("ema");
  return names;
}

/// Scalars of a step that the bodies share, as f64: rounded once when a group takes them.
class StepScalars {
 public:
  StepScalars(const Optimizer& optimizer, Value step, Value applied) : optimizer_(optimizer), step_(applied), rate_(learning_rate_f64(optimizer.rate, step)) {}

  std::vector<Value> of(const Treatment& treatment, DType dtype) {
    const Value rate = treatment.rate_factor == 1 ? rate_ : rate_ * treatment.rate_factor;
    const double decay = treatment.weight_decay;
    std::vector<Value> wide;
    switch (optimizer_.kind) {
      case Optimizer::Kind::Sgd: wide = {rate, number(decay), fresh_part()}; break;
      case Optimizer::Kind::Adam: wide = {rate / correction(optimizer_.beta1), sqrt(correction(optimizer_.beta2)), number(decay)}; break;
      case Optimizer::Kind::AdamW: wide = {rate / correction(optimizer_.beta1), sqrt(correction(optimizer_.beta2)), 1.0 - rate * decay}; break;
      case Optimizer::Kind::Lion: wide = {rate, 1.0 - rate * decay}; break;
      case Optimizer::Kind::Rmsprop: wide = {rate, number(decay)}; break;
      case Optimizer::Kind::Adagrad: wide = {rate / (1.0 + convert(step_, DType::F64) * optimizer_.rate_decay), number(decay)}; break;
      case Optimizer::Kind::Adafactor:
        wide = {rate, 1.0 - rate * decay, pow(convert(step_, DType::F64) + 1.0, optimizer_.beta2_decay), convert(step_, DType::F64) + 1.0};
        break;
    }
    if (optimizer_.ema_decay) wide.push_back(where(equal(step_, 0.0), number(1), number(0)));
    for (Value& value : wide) value = convert(value, dtype);
    return wide;
  }

 private:
  Value number(double value) { return scalar(*step_.builder, DType::F64, value); }
  /// 1 - beta^(step + 1).
  Value correction(double beta) { return 1.0 - pow(number(beta), convert(step_, DType::F64) + 1.0); }
  /// Share of the gradient that enters the momentum buffer: all of it in the first step.
  Value fresh_part() {
    const Value later = number(1 - optimizer_.dampening), first = number(1);
    return where(equal(step_, 0.0), first, later);
  }

  const Optimizer& optimizer_;
  Value step_;  // updates made before
  Value rate_;
};

/// In: parameter, gradient, momentum buffer if any; rate, decay, fresh part.
std::vector<Value> sgd_body(const Optimizer& optimizer, const std::vector<Value>& in, bool decays) {
  const bool momentum = optimizer.momentum != 0;
  const size_t scalars = momentum ? 3 : 2;
  const Value rate = in[scalars], decay = in[scalars + 1], fresh = in[scalars + 2];
  Value p = convert(in[0], rate.dtype()), d = convert(in[1], rate.dtype());
  if (decays) d = d + decay * p;
  if (!momentum) return {convert(p - rate * d, in[0].dtype())};
  const Value added = fresh * d, kept = in[2] * optimizer.momentum;  // in this order with any compiler
  const Value buffer = kept + added;
  d = optimizer.nesterov ? d + buffer * optimizer.momentum : buffer;
  return {convert(p - rate * d, in[0].dtype()), buffer};
}

/// In: parameter, gradient, first and second moment; step size, root of the second correction, decay (Adam) or what the decay leaves (AdamW).
std::vector<Value> adam_body(const Optimizer& optimizer, const std::vector<Value>& in, bool decays) {
  const Value size = in[4], root = in[5], decay = in[6];
  Value p = convert(in[0], size.dtype()), g = convert(in[1], size.dtype());
  if (decays && optimizer.kind == Optimizer::Kind::Adam) g = g + decay * p;
  if (decays && optimizer.kind == Optimizer::Kind::AdamW) p = p * decay;
  const Value first = in[2] * optimizer.beta1 + g * (1 - optimizer.beta1);
  const Value second = in[3] * optimizer.beta2 + g * g * (1 - optimizer.beta2);
  const Value next = p - size * (first / (sqrt(second) / root + optimizer.epsilon));
  return {convert(next, in[0].dtype()), first, second};
}

/// In: parameter, gradient, momentum; rate, what the decay leaves.
std::vector<Value> lion_body(const Optimizer& optimizer, const std::vector<Value>& in, bool decays) {
  const Value rate = in[3], left = in[4];
  Value p = convert(in[0], rate.dtype());
  const Value g = convert(in[1], rate.dtype());
  if (decays) p = p * left;
  p = p - rate * sign(in[2] * optimizer.beta1 + g * (1 - optimizer.beta1));
  return {convert(p, in[0].dtype()), in[2] * optimizer.alpha + g * (1 - optimizer.alpha)};
}

/// In: parameter, gradient, average of squares, average if centered, momentum buffer if any; rate, decay.
std::vector<Value> rmsprop_body(const Optimizer& optimizer, const std::vector<Value>& in, bool decays) {
  const size_t buffer = optimizer.centered ? 4 : 3, scalars = buffer + (optimizer.momentum != 0 ? 1 : 0);
  const Value rate = in[scalars], decay = in[scalars + 1];
  const Value p = convert(in[0], rate.dtype());
  Value g = convert(in[1], rate.dtype());
  if (decays) g = g + decay * p;
  const Value squares = in[2] * optimizer.alpha + g * g * (1 - optimizer.alpha);
  std::vector<Value> states{squares};
  Value mean_square = squares;
  if (optimizer.centered) {
    states.push_back(in[3] + (g - in[3]) * (1 - optimizer.alpha));
    mean_square = squares - states[1] * states[1];
  }
  Value change = g / (sqrt(mean_square) + optimizer.epsilon);
  if (optimizer.momentum != 0) {
    change = in[buffer] * optimizer.momentum + change;
    states.push_back(change);
  }
  states.insert(states.begin(), convert(p - rate * change, in[0].dtype()));
  return states;
}

/// In: parameter, gradient, sum of squares; rate, decay.
std::vector<Value> adagrad_body(const Optimizer& optimizer, const std::vector<Value>& in, bool decays) {
  const Value rate = in[3], decay = in[4];
  const Value p = convert(in[0], rate.dtype());
  Value g = convert(in[1], rate.dtype());
  if (decays) g = g + decay * p;
  const Value total = in[2] + g * g;
  return {convert(p - rate * (g / (sqrt(total) + optimizer.epsilon)), in[0].dtype()), total};
}

std::vector<Value> kind_body(const Optimizer& optimizer, const std::vector<Value>& in, bool decays) {
  switch (optimizer.kind) {
    case Optimizer::Kind::Sgd: return sgd_body(optimizer, in, decays);
    case Optimizer::Kind::Adam:
    case Optimizer::Kind::AdamW: return adam_body(optimizer, in, decays);
    case Optimizer::Kind::Lion: return lion_body(optimizer, in, decays);
    case Optimizer::Kind::Rmsprop: return rmsprop_body(optimizer, in, decays);
    case Optimizer::Kind::Adagrad: return adagrad_body(optimizer, in, decays);
    case Optimizer::Kind::Adafactor: break;
  }
  throw InternalError("optimizer: not element-wise");
}

/// The average starts from the parameter as it is before the first step, wherever that came from.
Value averaged(const Optimizer& optimizer, const Value& before, const Value& after, const Value& average, const Value& is_first) {
  const DType wide = average.dtype();
  const Value from = where(greater(is_first, 0.0), convert(before, wide), average);
  return from * *optimizer.ema_decay + convert(after, wide) * (1 - *optimizer.ema_decay);
}

/// Inputs: parameter, gradient, states, scalars, and the gradients' factor if there is one.
GraphId build_body(Module& module, const Optimizer& optimizer, const Group& group, size_t states, size_t scalars, const std::optional<TensorType>& factor) {
  const GraphId id = module.add_graph(std::string(name(optimizer.kind)));
  Builder builder(module, id);
  const DType wide = wide_dtype(group.parameter);
  std::vector<Value> in{builder.input({group.parameter, {}, {}}), builder.input({group.gradient, {}, {}})};
  for (size_t i = 0; i < states + scalars; ++i) in.push_back(builder.input({wide, {}, {}}));
  if (factor) in[1] = times_factor(in[1], builder.input(*factor));
  std::vector<Value> own = in;
  if (optimizer.ema_decay) own.erase(own.begin() + static_cast<std::ptrdiff_t>(1 + states)), own.pop_back();
  std::vector<Value> results = kind_body(optimizer, own, group.treatment.weight_decay != 0);
  if (optimizer.ema_decay) results.push_back(averaged(optimizer, in[0], results[0], in[1 + states], in.back()));
  for (const Value& result : results) builder.output(result);
  return id;
}

}  // namespace

namespace {

/// Adafactor needs sums over each tensor, so it is no body of MapTensors.
std::vector<StateUpdate> apply_adafactor(const Optimizer& optimizer, const std::vector<OptimizedParameter>& parameters, Value step, Value applied) {
  Builder& builder = *step.builder;
  StepScalars scalars(optimizer, step, applied);
  std::vector<StateUpdate> updates;
  for (const OptimizedParameter& parameter : parameters) {
    const Treatment treatment = treatment_of(optimizer, parameter.name);
    if (treatment.frozen) continue;
    const DType wide = wide_dtype(parameter.parameter.dtype());
    const std::vector<Value> shared = scalars.of(treatment, wide);
    const AdafactorScalars given{shared[0], shared[1], shared[2], shared[3]};
    const Value next = adafactor(optimizer, parameter, given, treatment.weight_decay != 0, updates);
    if (!optimizer.ema_decay) continue;
    const std::string name = parameter.name + ".ema";
    const Value average = builder.input({wide, parameter.parameter.shape(), {}}, {RoleKind::OptimizerState, name});
    updates.push_back({name, averaged(optimizer, parameter.parameter, next, average, shared.back()), false});
  }
  return updates;
}

}  // namespace

bool is_frozen(const Optimizer& optimizer, std::string_view parameter) { return treatment_of(optimizer, parameter).frozen; }

void check_patterns(const Optimizer& given, std::span<const std::string> parameters) {
  Optimizer optimizer = given;
  for (size_t i = 0; i < optimizer.no_decay.size(); ++i) check_pattern(optimizer, optimizer.no_decay, i, "no_decay: ", parameters);
  for (ParameterGroup& group : optimizer.groups)
    for (size_t i = 0; i < group.patterns.size(); ++i) check_pattern(optimizer, group.patterns, i, "", parameters);
}

Value times_factor(const Value& gradient, const Value& factor) {
  const DType wide = promote(gradient.dtype(), factor.dtype());
  return convert(convert(gradient, wide) * convert(factor, wide), gradient.dtype());
}

std::vector<StateUpdate> apply_optimizer(const Optimizer& optimizer, const std::vector<OptimizedParameter>& parameters, Value step,
                                         std::optional<Value> applied, std::optional<Value> gradient_factor) {
  if (optimizer.kind == Optimizer::Kind::Adafactor) {
    std::vector<OptimizedParameter> scaled = parameters;
    if (gradient_factor)
      for (OptimizedParameter& parameter : scaled) parameter.gradient = times_factor(parameter.gradient, *gradient_factor);
    return apply_adafactor(optimizer, scaled, step, applied.value_or(step));
  }
  Builder& builder = *step.builder;
  const std::vector<std::string> names = state_names(optimizer);
  std::vector<std::vector<Value>> states(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (treatment_of(optimizer, parameters[i].name).frozen) continue;
    const TensorType type{wide_dtype(parameters[i].parameter.dtype()), parameters[i].parameter.shape(), {}};
    for (const std::string& name : names) states[i].push_back(builder.input(type, {RoleKind::OptimizerState, parameters[i].name + "." + name}));
  }
  StepScalars scalars(optimizer, step, applied.value_or(step));
  std::map<std::tuple<DType, DType, bool>, GraphId> bodies;
  std::vector<std::vector<Value>> updated(parameters.size());
  for (const Group& group : group_parameters(optimizer, parameters)) {
    const auto [body, fresh] = bodies.try_emplace({group.parameter, group.gradient, group.treatment.weight_decay != 0});
    const std::vector<Value> shared = scalars.of(group.treatment, wide_dtype(group.parameter));
    if (fresh) {
      const std::optional<TensorType> factor = gradient_factor ? std::optional<TensorType>(gradient_factor->type()) : std::nullopt;
      body->second = build_body(builder.module(), optimizer, group, names.size(), shared.size(), factor);
    }
    std::vector<Value> inputs;
    for (size_t i : group.members) inputs.push_back(parameters[i].parameter);
    for (size_t i : group.members) inputs.push_back(parameters[i].gradient);
    for (size_t table = 0; table < names.size(); ++table)
      for (size_t i : group.members) inputs.push_back(states[i][table]);
    inputs.insert(inputs.end(), shared.begin(), shared.end());
    if (gradient_factor) inputs.push_back(*gradient_factor);
    MapTensors map;
    map.body = body->second;
    map.tensors = static_cast<int64_t>(group.members.size());
    map.tables = static_cast<int64_t>(2 + names.size());
    const std::vector<Value> results = builder.emit(map, inputs);
    for (size_t r = 0; r < results.size(); ++r) updated[group.members[r % group.members.size()]].push_back(results[r]);
  }
  std::vector<StateUpdate> updates;
  for (size_t i = 0; i < parameters.size(); ++i)
    for (size_t r = 0; r < updated[i].size(); ++r)
      updates.push_back({r == 0 ? parameters[i].name : parameters[i].name + "." + names[r - 1], updated[i][r], r == 0});
  return updates;
}

}  // namespace stepgraph
