// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/compile.h"

#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/passes/cse.h"
#include "stepgraph/compile/passes/outline_repeats.h"
#include "stepgraph/compile/passes/partition.h"
#include "stepgraph/compile/passes/simplify.h"

namespace stepgraph {
namespace {

bool is_captured_model(const Module& module) { return module.find_entry("forward") && !module.find_entry("step"); }

/// The order of lines is the order of passes.
Module run_passes(Module module, const CompileOptions& options, PassRunner& passes) {
  if (options.training && is_captured_model(module)) {
    const Optimizer& optimizer = options.training->optimizer;
    const StepOptions& step = options.training->step;
    module = passes.run_optional("outline", std::move(module), outline_repeats);
    module = passes.run("differentiate", std::move(module), [&](Module m) { return differentiate(std::move(m), optimizer); });
    module = passes.run("accumulate", std::move(module), [&](Module m) { return accumulate(std::move(m), step.micro_batches); });
    module = passes.run("scale", std::move(module), [&](Module m) { return scale_loss(std::move(m), step.loss_scale); });
    module = passes.run("clip", std::move(module), [&](Module m) { return clip_gradients(std::move(m), step.clip_norm); });
    module = passes.run("optimizer", std::move(module), [&](Module m) { return update_parameters(std::move(m), optimizer, step.gradients_as_outputs); });
  }
  module = passes.run_optional("simplify", std::move(module), simplify);
  module = passes.run_optional("cse", std::move(module), merge_common_subexpressions);
  module = passes.run("propagate", std::move(module), [&](Module m) { return propagate_shardings(std::move(m), options.mesh, options.sharding); });
  module = passes.run("partition", std::move(module), partition);
  return module;
}

}  // namespace

Module compile(Module module, const CompileOptions& options, PassLog* log) {
  std::vector<std::string> skip = options.skip;
  if (!options.training || !is_captured_model(module)) std::erase(skip, "outline");  // is behind such a module
  PassRunner passes(std::move(skip), options.stop_at, log);
  if (options.training) {
    check(options.training->optimizer);
    check(options.training->step);
  }
  verify(module);  // the user's: a fault here is a UserError, one after a pass is ours
  module = run_passes(std::move(module), options, passes);
  passes.check_names();
  return module;
}

Module train_step(Module forward, const Optimizer& optimizer, const StepOptions& options) {
  CompileOptions compile_options;
  compile_options.training = TrainingOptions{optimizer, options};
  compile_options.skip = {"outline"};
  compile_options.stop_at = "optimizer";
  forward.entry("forward");
  return compile(std::move(forward), compile_options);
}

Module train_step(const std::vector<InputSpec>& inputs, const ModelFunction& model, const Optimizer& optimizer, const StepOptions& options,
                  const CaptureOptions& capture_options) {
  StepOptions resolved = options;
  if (resolved.loss_scale.kind == LossScale::Kind::Automatic && capture_options.autocast.dtype == DType::F16)
    resolved.loss_scale.kind = LossScale::Kind::Dynamic;
  return train_step(capture(inputs, model, capture_options), optimizer, resolved);
}

}  // namespace stepgraph
