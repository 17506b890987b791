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
};
/// logits with the classes in one dim; targets: integers of the logits' shape without that dim. Sum of -log_softmax(logits)[target], and the number of
/// targets that count. Another target outside [0, C) is a UserError when run.
LossSum cross_entropy_sum(At logits, Value targets, const CrossEntropyOptions& options = {});
/// Targets whose logit is the largest (the first of equal ones), and the number of targets that count.
LossSum accuracy_sum(At logits, Value targets, const CrossEntropyOptions& options = {});
/// Sum of squared differences, and the number of elements. Shapes broadcast.
LossSum mse_sum(At prediction, Value target);

}  // namespace stepgraph
