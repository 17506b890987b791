// SPDX-License-Identifier: Apache-2.0
// What an input or an output of an entry is to the training loop.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include "stepgraph/base/error.h"

namespace stepgraph {

/// The loss is a sum of terms, each a quotient of sums over the rows of a batch. Term T ("loss", "loss.1", ...) is
///
///     loss_numerator T / (max(loss_denominator T, loss_denominator_least T) + loss_denominator_constant T)
///
/// where numerator and denominator add up over micro-batches and evaluated batches, and `least` and `constant`, where they are, count once: a sum over the batch
/// has a denominator of 0 and the constant 1. A loss_denominator_whole in place of the loss_denominator says that no parts of a batch can be put together.
enum class RoleKind : uint8_t {
  None, Parameter, OptimizerState, Buffer, Derived, Batch, Seed, Step, Scalar,  // inputs
  LossGradient,  // an input between two passes: the gradient of a term's numerator
  LossNumerator, LossDenominator, LossDenominatorWhole, LossDenominatorLeast, LossDenominatorConstant, Metric, MetricNumerator, MetricDenominator,  // outputs
  LearningRate, GradientNorm, LossScale, Skipped,  // numbers of a training step; the last is 1 for a step without an update
  GradientFactor,                                  // between two passes: what all gradients are yet to be multiplied by
  Gradient, Saved, UserOutput,
  Tap,  // a copy of a value of the program, for who looks
  NewState,
};
std::string_view name(RoleKind kind);  ///< "parameter", "new_state", ...
std::optional<RoleKind> role_from_name(std::string_view text);
struct Role {
  RoleKind kind = RoleKind::None;
  /// Of a state or batch input: its name ("wte.weight"). Of NewState: the name of the state that it replaces. Of Metric, UserOutput, Gradient, Tap: its name.
  /// MetricNumerator and MetricDenominator of one name are a metric that is the quotient of their sums; Metric is a number as it is. Of a part of the loss: the
  /// name of the term; "" is the term "loss".
  std::string name;
  int64_t batch_dim = 0;  ///< of Batch: the dim of the rows; 1 where a dim of micro-batches is before it
  bool operator==(const Role&) const = default;
};
bool is_state(RoleKind kind);             ///< Parameter, OptimizerState, Buffer
bool is_output(RoleKind kind);            ///< of the kinds after LossGradient
bool is_loss_denominator(RoleKind kind);  ///< of the four kinds
/// UserError for a metric with a name under which a training step reports a number of its own.
void check_metric_name(std::string_view metric, const SourcePlace& place);
/// The term of the loss that a part of it belongs to.
std::string_view loss_term(const Role& role);

}  // namespace stepgraph
