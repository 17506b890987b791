// SPDX-License-Identifier: Apache-2.0
// stepgraph eval
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "stepgraph/base/printable.h"
#include "stepgraph/train/fit.h"
#include "stepgraph/train/weights.h"
#include "tools/job_options.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

struct EvalFlags {
  JobFlags job;
  bool json = false;
};

void evaluate_checkpoint(const EvalFlags& flags) {
  const TrainJob job = read_job(flags.job).job;
  if (job.checkpoint.empty() && job.weights.empty() && !is_pt2(job.model.name))
    throw UserError("eval needs --checkpoint DIR: a directory of checkpoints, or one of them; or --weights FILE");
  TrainerOptions options = trainer_options(job);
  BuiltModel model = build_job_model(job);
  options.guards = model.guards;
  for (const std::string& warning : model.warnings) tell("note", warning);
  Trainer trainer(std::move(model.module), options);
  if (job.checkpoint.empty()) {
    start_from(trainer, model.weights);
    if (!job.weights.empty()) load_weights(job.weights, trainer, model);
  } else {
    for (const std::string& message : restore_weights(trainer, job.checkpoint)) tell("note", message);
  }
  const Splits data = open_data(job.data);
  for (const std::string& message : data.notes) tell("note", message);
  check_bindings(job.data.bind, trainer.logical());
  // The job's eval_limit is for evaluations during training: here only the flag counts.
  const bool limited = std::any_of(flags.job.values.begin(), flags.job.values.end(), [](const auto& value) { return value.first == "--eval-limit"; });
  const int64_t limit = limited ? job.eval_limit : 0;
  const EvaluationPlan plan = plan_evaluation(trainer.logical(), data.test->size(), job.eval_batch > 0 ? job.eval_batch : job.batch, job.eval_batch > 0);
  if (!plan.note.empty()) tell("note", plan.note);
  const EvalReport report = evaluate(trainer, data.test, plan.batch, limit);
  const int64_t samples = limit > 0 ? std::min(plan.samples, limit * plan.batch) : plan.samples;
  if (flags.json) {
    nlohmann::ordered_json line;
    line["step"] = report.step;
    line["test_loss"] = report.loss ? nlohmann::ordered_json(*report.loss) : nlohmann::ordered_json();
    for (const auto& [metric, value] : report.metrics) line["test_" + printable(metric)] = value;
    line["samples"] = samples;
    std::puts(line.dump().c_str());
    return;
  }
  const std::string what = !job.checkpoint.empty() ? fmt::format("checkpoint at step {}", report.step) : !job.weights.empty() ? job.weights : job.model.name;
  fmt::print("{} · {} test samples\n{}\n", printable(what), samples, report.loss ? fmt::format("loss {:.6f}", *report.loss) : "nothing evaluated");
  for (const auto& [metric, value] : report.metrics) fmt::print("{} {:.6f}\n", metric, value);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb = app.add_subcommand("eval", "loss and metrics of a checkpoint on the test set");
  add_job_flags(*verb, flags->job, {"data", "checkpoint.directory", "train.weights", "train.batch", "train.mesh", "train.seed", "train.backend", "train.threads", "train.tuning", "train.flush_denormals", "train.sizes", "train.buckets", "train.fullgraph", "train.eval_batch", "train.eval_limit"});
  verb->add_flag("--json", flags->json, "one JSON line");
  verb->footer("The other options of train are taken too, so that a run is evaluated with the flags that it was trained with.\n"
               "Example:\n  stepgraph eval --config examples/digits.toml --checkpoint runs/digits");
  verb->callback([flags] { evaluate_checkpoint(*flags); });
}

}  // namespace stepgraph
