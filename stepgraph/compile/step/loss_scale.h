// SPDX-License-Identifier: Apache-2.0
// Loss scaling, so that small gradients do not vanish in f16 (Micikevicius et al., 2018), with the rules of torch.amp.GradScaler: the loss is multiplied by the scale before the
// backward, gradients are divided by the same scale; a step with a gradient that is not finite changes neither parameters nor the optimizer's state and makes the scale smaller.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/step/optimizer.h"

namespace stepgraph {

struct LossScale {
  enum class Kind : uint8_t { Automatic, None, Constant, Dynamic } kind = Kind::Automatic;
  double start = 65536;     ///< Constant: for ever
  double growth = 2;        ///< after `interval` good steps in a row
  double backoff = 0.5;     ///< after a step that was skipped
  int64_t interval = 2000;
};
/// UserError for values outside their range.
void check(const LossScale& scale);

/// State that counts the updates made: the steps that were not skipped.
inline constexpr std::string_view applied_steps_name = "optimizer.applied_steps";

/// Loss scaling in one graph of a training step: the scale's state is an input of it.
class LossScaler {
 public:
  /// Declares the state: "optimizer.applied_steps" i64; Dynamic also "optimizer.loss_scale" f32 and "optimizer.good_steps" i64.
  LossScaler(Builder& builder, const LossScale& options);
  Value scale() const { return scale_; }      ///< f32
  Value finite() const { return *finite_; }   ///< after unscale: whether this step counts
  /// Gradients of the scaled loss become those of the loss.
  void unscale(std::vector<OptimizedParameter>& parameters);
  /// After unscale: new values of the state above.
  std::vector<StateUpdate> own_state() const;

 private:
  Builder& builder_;
  LossScale options_;
  Value scale_, applied_;
  std::optional<Value> good_, finite_;
};
/// Updates made before this step, where some may be skipped: an input of the graph.
std::optional<Value> applied_steps(Builder& builder);
/// The old values where `skipped` is not 0.
void keep_if_skipped(Builder& builder, Value skipped, std::vector<StateUpdate>& updates);
/// What `init` gives for state that does not start with zero.
std::map<std::string, double> starts(const LossScale& options);

}  // namespace stepgraph
