// SPDX-License-Identifier: Apache-2.0
// Optimizers and learning-rate schedules: part of the captured step, with PyTorch's semantics. Rates are device scalars computed from the step number.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// Learning rate as a function of the step number (from 0).
struct Schedule {
  enum class Kind : uint8_t { Constant, WarmupCosine, WarmupLinear, Step } kind = Kind::Constant;
  double rate = 1e-3;
  int64_t warmup = 0;   ///< steps of linear rise: rate * (step + 1) / warmup
  int64_t total = 0;    ///< WarmupCosine, WarmupLinear: step at which `minimum` is reached
  double minimum = 0;   ///< lowest rate, absolute
  int64_t every = 0;    ///< Step: multiply by `factor` each `every` steps
  double factor = 0.1;
  Schedule() = default;
  Schedule(double constant_rate) : rate(constant_rate) {}  // NOLINT
  bool operator==(const Schedule&) const = default;
};
Schedule warmup_cosine(double rate, int64_t warmup, int64_t total, double minimum = 0);
Schedule warmup_linear(double rate, int64_t warmup, int64_t total, double minimum = 0);
Schedule step_decay(double rate, int64_t every, double factor);
/// UserError for values outside their range.
void check(const Schedule& schedule);
/// The rate at the step held by `step` (i64 scalar), as an f32 scalar (computed in f64).
Value learning_rate(const Schedule& schedule, Value step);
Value learning_rate_f64(const Schedule& schedule, Value step);  ///< before that rounding
/// The same as a number: the reference for tests and progress bars.
double learning_rate_at(const Schedule& schedule, int64_t step);

/// Overrides for the parameters whose names match. Patterns: '*' any characters, '?' one. The first group that matches counts.
struct ParameterGroup {
  std::vector<std::string> patterns = {};
  double rate_factor = 1;
  std::optional<double> weight_decay = {};
  bool frozen = false;  ///< no gradient, no state, no update
};
struct Optimizer {
  /// Lion: Chen et al., 2023. Rmsprop: Hinton, 2012. Adagrad: Duchi et al., 2011. Adafactor: Shazeer, Stern, 2018, as torch.optim.Adafactor.
  enum class Kind : uint8_t { Sgd, Adam, AdamW, Lion, Rmsprop, Adagrad, Adafactor } kind = Kind::AdamW;
  Schedule rate = {};
  double weight_decay = 0;  ///< Sgd, Adam, Rmsprop, Adagrad: added to the gradient (L2); AdamW, Lion, Adafactor: decoupled
  double momentum = 0, dampening = 0;  ///< Sgd; momentum also Rmsprop
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< Adam, AdamW; beta1 also Lion; epsilon also Rmsprop, Adagrad
  double alpha = 0.99;      ///< Rmsprop: of the average of squares; Lion: of the momentum (beta2 in its paper)
  bool centered = false;    ///< Rmsprop: by the variance, not the mean square
  double rate_decay = 0;    ///< Adagrad: the rate is divided by 1 + step * rate_decay
  double beta2_decay = -0.8, clip_threshold = 1, minimum_scale = 1e-3;  ///< Adafactor: 1 - beta2 is (step + 1)^beta2_decay; torch's d and eps[1]
  /// Also keeps an average of each trained parameter, state "NAME.ema" = ema_decay * itself + (1 - ema_decay) * the new value, from the first value on.
  std::optional<double> ema_decay = {};
  std::vector<std::string> no_decay = {};  ///< patterns with weight decay 0; a shorthand for a group
  std::vector<ParameterGroup> groups = {};
};
std::string_view name(Optimizer::Kind kind);  ///< "adamw"
/// UserError for values outside their range.
void check(const Optimizer& optimizer);
/// UserError for a pattern of no_decay or of a group that matches none of the model's parameters, naming the nearest, or that changes nothing: what it matches
/// is treated alike without it.
void check_patterns(const Optimizer& optimizer, std::span<const std::string> parameters);
bool is_frozen(const Optimizer& optimizer, std::string_view parameter);

struct OptimizedParameter {
  std::string name;
  Value parameter, gradient;
};
struct StateUpdate {
  std::string name;        ///< "wte.weight", or of optimizer state "wte.weight.exp_avg", "wte.weight.momentum_buffer", "optimizer.step"
  Value value;             ///< its new value
  bool is_parameter = false;
};
/// Appends the update as MapTensors over groups of tensors with equal treatment. Declares optimizer state as inputs of the builder's graph (role
/// OptimizerState, names as above), and returns the new values of parameters and states. `step`: i64 scalar, number of this step from 0.
/// `applied` counts the updates made before, where steps may be skipped (loss_scale.h): moments are corrected by it, the schedule goes by the step.
/// Every gradient is first multiplied by `gradient_factor`.
std::vector<StateUpdate> apply_optimizer(const Optimizer& optimizer, const std::vector<OptimizedParameter>& parameters, Value step,
                                         std::optional<Value> applied = std::nullopt, std::optional<Value> gradient_factor = std::nullopt);
/// A gradient times a factor of f32 or f64, in the wider dtype, rounded once.
Value times_factor(const Value& gradient, const Value& factor);

}  // namespace stepgraph
