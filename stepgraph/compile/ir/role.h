// SPDX-License-Identifier: Apache-2.0
// What an input or an output of an entry is to the training loop.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stepgraph {

enum class RoleKind : uint8_t {
  None, Parameter, OptimizerState, Buffer, Derived, Batch, Seed, Step, Scalar,           // inputs
  LossNumerator, LossDenominator, Metric, MetricNumerator, MetricDenominator, Gradient, GradientFactor, Saved, UserOutput, NewState,  // outputs
};
std::string_view name(RoleKind kind);  ///< "parameter", "new_state", ...
std::optional<RoleKind> role_from_name(std::string_view text);
struct Role {
  RoleKind kind = RoleKind::None;
  /// Of a state or batch input: its name ("wte.weight"). Of NewState: the name of the state that it replaces. Of Metric, UserOutput, Gradient: its name.
  /// MetricNumerator and MetricDenominator of one name are a metric that is the quotient of their sums; Metric is a number as it is ("learning_rate").
  std::string name;
  int64_t batch_dim = 0;  ///< of Batch: the dim of the rows; 1 where a dim of micro-batches is before it
  bool operator==(const Role&) const = default;
};
bool is_state(RoleKind kind);  ///< Parameter, OptimizerState, Buffer

}  // namespace stepgraph
