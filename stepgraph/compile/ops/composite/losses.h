// SPDX-License-Identifier: Apache-2.0
// Losses as a pair of sums: the loss of a batch is numerator / denominator, and both add up over micro-batches and ranks.
#pragma once
#include <optional>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

struct LossSum {
  Value numerator, denominator;  ///< f32 (f64 for f64 predictions) scalars
};

struct CrossEntropyOptions {
  int64_t class_dim = -1;  ///< of the logits; PyTorch's layout [N, C, ...] is 1
  /// Targets of this value count for nothing and may lie outside the classes.
  std::optional<int64_t> ignore_index = -100;
  std::optional<Value> weight = {};  ///< [C]: of each class; the denominator is the sum of the targets' weights. accuracy_sum counts all alike
  double label_smoothing = 0;        ///< share of the target that is spread over all classes (Szegedy et al., 2015)
};
/// logits with the classes in one dim; targets: integers of the logits' shape without that dim. Sum of -log_softmax(logits)[target], and the number of
/// targets that count. Another target outside [0, C) is a UserError when run.
LossSum cross_entropy_sum(At logits, Value targets, const CrossEntropyOptions& options = {});
/// The same of log-probabilities; no smoothing.
LossSum nll_sum(At log_probabilities, Value targets, const CrossEntropyOptions& options = {});
/// Targets whose logit is the largest (the first of equal ones), and the number of targets that count.
LossSum accuracy_sum(At logits, Value targets, const CrossEntropyOptions& options = {});
/// Sum of squared differences, and the number of elements. Shapes broadcast.
LossSum mse_sum(At prediction, Value target);
/// Half the square up to `delta`, linear beyond (Huber, 1964), and the number of elements. As mse_sum, so are the two below.
LossSum huber_sum(At prediction, Value target, double delta = 1);
/// Binary cross-entropy of sigmoid(logits), without ever forming the sigmoid. Targets in [0, 1]; pos_weight broadcasts to the logits.
LossSum bce_with_logits_sum(At logits, Value targets, std::optional<Value> pos_weight = std::nullopt);
/// target * (log target - log_probabilities): divergence from the target. `log_target`: the target comes as its logarithm. The number of rows (of dim 0)
/// is the denominator, as PyTorch's "batchmean".
LossSum kl_div_sum(At log_probabilities, Value target, bool log_target = false);

// ---- of each element or target, before any reduction
Value huber_losses(At prediction, Value target, double delta);
Value bce_with_logits_losses(At logits, Value targets, std::optional<Value> pos_weight = std::nullopt);
Value kl_div_losses(At log_probabilities, Value target, bool log_target = false);
struct ClassLosses {
  Value losses;                  ///< 0 for a target that is ignored
  std::optional<Value> counts;   ///< bool; absent when all targets count
  std::optional<Value> weights;  ///< of each target, 0 for an ignored one; absent without class weights
};
/// Of log-probabilities (smoothed, if asked for, as cross_entropy does).
ClassLosses class_losses(At log_probabilities, Value targets, const CrossEntropyOptions& options = {});

}  // namespace stepgraph
