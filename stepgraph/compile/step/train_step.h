// SPDX-License-Identifier: Apache-2.0
// From a captured model to a whole training iteration, pass by pass: forward, loss, backward, accumulation over micro-batches, clipping, optimizer.
#pragma once
#include <optional>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/step/loss_scale.h"
#include "stepgraph/compile/step/optimizer.h"

namespace stepgraph {

struct StepOptions {
  std::optional<double> clip_norm = {};  ///< global L2 norm over all gradients, in f32, as torch.nn.utils.clip_grad_norm_
  int64_t micro_batches = 1;        ///< the batch is worked through in this many slices; gradients add up in f32
  bool gradients_as_outputs = false;  ///< also return each parameter's gradient, as the optimizer gets it (role gradient)
  LossScale loss_scale = {};          ///< Automatic is Dynamic where the model is captured with f16 by an overload of train_step (compile.h), else None
};
/// UserError for values outside their range.
void check(const StepOptions& options);
/// All that a captured model needs to become a training step.
struct TrainingOptions {
  Optimizer optimizer;
  StepOptions step;
};

// The passes, in order; `compile` (compile.h) runs them. Each takes and gives a whole Logical module. Until the last, the gradients are outputs of `step`.

/// Entries init, forward, eval -> init, step, eval. `step` returns what `forward` does and the gradient of the loss's numerator by each trained parameter (no
/// frozen one; none that the loss does not depend on), times its input of role loss_gradient (one for each term of the loss,
/// `loss.1_gradient`). Gradients that `forward` brings (of an imported joint
/// program, of the mean over the batch) are taken as they are, and there is no such input. Nodes get their phase.
Module differentiate(Module model, const Optimizer& optimizer);
/// The batch in slices: the batch inputs get a leading dim of `micro_batches`, the model's batch symbol then means the size of one, and the step becomes a Loop
/// that carries sums of gradients (in f32, or f64), loss and metrics, and buffers in order. The loss denominator of the whole batch is known before it. With 1
/// nothing changes. UserError for a model that brings its own gradients, and for a loss of whole batches alone (loss_denominator_whole).
Module accumulate(Module step, int64_t micro_batches);
/// Each `loss_gradient` becomes 1 / denominator (0 for 0, so that a batch without any valid element has gradient zero and not NaN), times the loss scale if there is
/// one; gradients are then divided by it again, the scale's state is added, and the numbers loss_scale and skipped. The loss becomes one term.
Module scale_loss(Module step, const LossScale& options);
/// Gradients of at most this norm over all of them, by an output of role gradient_factor that the optimizer multiplies them by, and the number gradient_norm. Without one nothing changes.
Module clip_gradients(Module step, std::optional<double> clip_norm);
/// Gradients become new state, `init` gives the optimizer's first one; the number learning_rate. A step that is skipped keeps the old state.
Module update_parameters(Module step, const Optimizer& optimizer, bool gradients_as_outputs);

/// Names of the parameters of entry step, by what a step does with them.
struct TrainedParameters {
  std::vector<std::string> trained;
  std::vector<std::string> frozen;     ///< by a group of the optimizer
  std::vector<std::string> unreached;  ///< no gradient of the loss reaches them
};
TrainedParameters trained_parameters(const Module& module, const Optimizer& optimizer);

}  // namespace stepgraph
