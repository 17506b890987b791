// SPDX-License-Identifier: Apache-2.0
// From a captured model to a whole training iteration: forward, loss, backward, accumulation over micro-batches, clipping, optimizer.
#pragma once
#include <optional>
#include "stepgraph/compile/capture/capture.h"
#include "stepgraph/compile/capture/loss_scale.h"
#include "stepgraph/compile/capture/optimizer.h"

namespace stepgraph {

struct StepOptions {
  std::optional<double> clip_norm = {};  ///< global L2 norm over all gradients, in f32, as torch.nn.utils.clip_grad_norm_
  int64_t micro_batches = 1;        ///< the batch is worked through in this many slices; gradients add up in f32
  bool gradients_as_outputs = false;  ///< also return each parameter's gradient, as the optimizer gets it (role gradient)
  LossScale loss_scale = {};          ///< Automatic is Dynamic where the model is captured with f16 by the overload below, else None
};
/// `forward` has entries init, forward, eval. Outputs of `forward` with role gradient (of an imported joint program) are taken for the gradients of the loss,
/// and nothing is differentiated; it then has no micro-batches (UserError). The result has init (with optimizer state), step and eval. With micro_batches m > 1 the batch inputs of
/// `step` have a leading dim of m and the model's batch symbol means the size of one micro-batch. Outputs of step: loss numerator and denominator of the
/// whole batch, metrics, "gradient_norm" with clipping, "loss_scale" and "skipped" with loss scaling, new state.
Module train_step(Module forward, const Optimizer& optimizer, const StepOptions& options = {});
/// Names of the parameters of entry step, by what a step does with them.
struct TrainedParameters {
  std::vector<std::string> trained;
  std::vector<std::string> frozen;     ///< by a group of the optimizer
  std::vector<std::string> unreached;  ///< no gradient of the loss reaches them
};
TrainedParameters trained_parameters(const Module& module, const Optimizer& optimizer);
/// Both at once.
Module train_step(const std::vector<InputSpec>& inputs, const ModelFunction& model, const Optimizer& optimizer, const StepOptions& options = {},
                  const CaptureOptions& capture_options = {});

}  // namespace stepgraph
