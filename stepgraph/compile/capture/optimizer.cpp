// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/optimizer.h"

#include <cmath>
#include <map>
#include <tuple>

#include <fmt/core.h>

#include "stepgraph/base/nearest.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

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
  for (const ParameterGroup& group : optimizer.groups) {
    if (group.patterns.empty()) throw UserError("optimizer: a parameter group has no patterns");
    wanted(not_negative(group.rate_factor), "rate factor of a group", group.rate_factor, "a number of at least 0");
    if (group.weight_decay) wanted(not_negative(*group.weight_decay), "weight decay of a group", *group.weight_decay, "a number of at least 0");
  }
}

bool matches(std::string_view pattern, std::string_view name) {
  // Greedy with one point to come back to: linear memory, at most |pattern| * |name| steps.
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void check_patterns(const Optimizer& optimizer, std::span<const std::string> parameters) {
  for (const ParameterGroup& group : optimizer.groups)
    for (const std::string& pattern : group.patterns) {
      bool found = false;
      for (const std::string& name : parameters) found = found || matches(pattern, name);
      if (!found)
        throw UserError(fmt::format("optimizer: pattern '{}' matches no parameter; nearest are {}", pattern, nearest_names(pattern, parameters)));
    }
}

namespace {

struct Treatment {
  double rate_factor = 1, weight_decay = 0;
  bool frozen = false;
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

DType state_dtype(DType parameter) { return parameter == DType::F64 ? DType::F64 : DType::F32; }

std::vector<std::string> state_names(const Optimizer& optimizer) {
  switch (optimizer.kind) {
    case Optimizer::Kind::Sgd:
      return optimizer.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
    case Optimizer::Kind::Adam:
    case Optimizer::Kind::AdamW:
      return {"exp_avg", "exp_avg_sq"};
  }
  throw InternalError("optimizer: unknown kind");
}

/// Scalars of a step that the bodies share, as f64: rounded once when a group takes them.
class StepScalars {
 public:
  StepScalars(const Optimizer& optimizer, Value step) : optimizer_(optimizer), step_(step), rate_(learning_rate_f64(optimizer.rate, step)) {}

  std::vector<Value> of(const Treatment& treatment, DType dtype) {
    const Value rate = treatment.rate_factor == 1 ? rate_ : rate_ * treatment.rate_factor;
    const double decay = treatment.weight_decay;
    std::vector<Value> wide;
    switch (optimizer_.kind) {
      case Optimizer::Kind::Sgd: wide = {rate, number(decay), fresh_part()}; break;
      case Optimizer::Kind::Adam: wide = {rate / correction(optimizer_.beta1), sqrt(correction(optimizer_.beta2)), number(decay)}; break;
      case Optimizer::Kind::AdamW:
        wide = {rate / correction(optimizer_.beta1), sqrt(correction(optimizer_.beta2)), 1.0 - rate * decay};
        break;
    }
    for (Value& value : wide) value = convert(value, dtype);
    return wide;
  }

 private:
  Value number(double value) { return scalar(*step_.builder, DType::F64, value); }
  /// 1 - beta^(step + 1).
  Value correction(double beta) { return 1.0 - pow(number(beta), convert(step_, DType::F64) + 1.0); }
  /// Share of the gradient that enters the momentum buffer: all of it in the first step.
  Value fresh_part() { return where(equal(step_, 0.0), number(1), number(1 - optimizer_.dampening)); }

  const Optimizer& optimizer_;
  Value step_, rate_;
};

/// In: parameter, gradient, momentum buffer if any; rate, decay, fresh part.
std::vector<Value> sgd_body(const Optimizer& optimizer, const std::vector<Value>& in, bool decays) {
  const bool momentum = optimizer.momentum != 0;
  const size_t scalars = momentum ? 3 : 2;
  const Value rate = in[scalars], decay = in[scalars + 1], fresh = in[scalars + 2];
  Value p = convert(in[0], rate.dtype()), d = convert(in[1], rate.dtype());
  if (decays) d = d + decay * p;
  if (!momentum) return {convert(p - rate * d, in[0].dtype())};
  const Value buffer = in[2] * optimizer.momentum + fresh * d;
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

GraphId build_body(Module& module, const Optimizer& optimizer, const Group& group, size_t states) {
  const bool sgd = optimizer.kind == Optimizer::Kind::Sgd, adam = optimizer.kind == Optimizer::Kind::Adam;
  const GraphId id = module.add_graph(sgd ? "sgd" : adam ? "adam" : "adamw");
  Builder builder(module, id);
  const DType wide = state_dtype(group.parameter);
  std::vector<Value> in{builder.input({group.parameter, {}, {}}), builder.input({group.gradient, {}, {}})};
  for (size_t i = 0; i < states + 3; ++i) in.push_back(builder.input({wide, {}, {}}));
  const bool decays = group.treatment.weight_decay != 0;
  for (const Value& result : sgd ? sgd_body(optimizer, in, decays) : adam_body(optimizer, in, decays)) builder.output(result);
  return id;
}

}  // namespace

std::vector<StateUpdate> apply_optimizer(const Optimizer& optimizer, const std::vector<OptimizedParameter>& parameters, Value step) {
  Builder& builder = *step.builder;
  const std::vector<std::string> names = state_names(optimizer);
  std::vector<std::vector<Value>> states(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (treatment_of(optimizer, parameters[i].name).frozen) continue;
    const TensorType type{state_dtype(parameters[i].parameter.dtype()), parameters[i].parameter.shape(), {}};
    for (const std::string& name : names) states[i].push_back(builder.input(type, {RoleKind::OptimizerState, parameters[i].name + "." + name}));
  }
  StepScalars scalars(optimizer, step);
  std::map<std::tuple<DType, DType, bool>, GraphId> bodies;
  std::vector<std::vector<Value>> updated(parameters.size());
  for (const Group& group : group_parameters(optimizer, parameters)) {
    const auto [body, fresh] = bodies.try_emplace({group.parameter, group.gradient, group.treatment.weight_decay != 0});
    if (fresh) body->second = build_body(builder.module(), optimizer, group, names.size());
    std::vector<Value> inputs;
    for (size_t i : group.members) inputs.push_back(parameters[i].parameter);
    for (size_t i : group.members) inputs.push_back(parameters[i].gradient);
    for (size_t table = 0; table < names.size(); ++table)
      for (size_t i : group.members) inputs.push_back(states[i][table]);
    for (const Value& value : scalars.of(group.treatment, state_dtype(group.parameter))) inputs.push_back(value);
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
