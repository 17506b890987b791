// SPDX-License-Identifier: Apache-2.0
// The way from a model to the program of one place of a mesh: one list of passes. A pure function of its arguments.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/capture/capture.h"
#include "stepgraph/compile/passes/collective_summary.h"
#include "stepgraph/compile/passes/pass.h"
#include "stepgraph/compile/passes/propagate_shardings.h"
#include "stepgraph/compile/step/train_step.h"

namespace stepgraph {

/// That CompileOptions::skip may name.
inline constexpr std::array<std::string_view, 3> optional_passes{"outline", "simplify", "cse"};
struct CompileOptions {
  std::optional<TrainingOptions> training;  ///< for a captured model (an entry forward and no step): it becomes a training step first
  Mesh mesh;
  ShardingOptions sharding;
  std::vector<std::string> skip;  ///< of optional_passes
  std::string stop_at;            ///< the last pass; empty: all
};

/// All entries at once: the module at the Local stage, or as it is after the pass `stop_at`.
Module compile(Module module, const CompileOptions& options = {}, PassLog* log = nullptr);

/// A captured model as a Logical module with entries init (with optimizer state), step and eval: `compile` up to its pass `optimizer`, without `outline`.
/// Outputs of step: loss numerator and denominator of the whole batch, metrics, loss_scale and skipped with loss scaling, gradient_norm with clipping,
/// learning_rate, gradients if they are wanted, new state. With micro_batches m > 1 the batch inputs of `step` have a leading dim of m.
Module train_step(Module forward, const Optimizer& optimizer, const StepOptions& options = {});
/// Captured as well.
Module train_step(const std::vector<InputSpec>& inputs, const ModelFunction& model, const Optimizer& optimizer, const StepOptions& options = {},
                  const CaptureOptions& capture_options = {});

}  // namespace stepgraph
