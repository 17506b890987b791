// SPDX-License-Identifier: Apache-2.0
// stepgraph train
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>

#include "stepgraph/backend/shapes_report.h"
#include "stepgraph/base/file.h"
#include "stepgraph/base/printable.h"
#include "stepgraph/base/process_memory.h"
#include "stepgraph/compile/compile.h"
#include "tools/curve.h"
#include "tools/job_options.h"
#include "tools/json_line.h"
#include "tools/progress.h"
#include "tools/trace_file.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

using Json = nlohmann::ordered_json;

/// Set by SIGINT and SIGTERM: the run ends in order after the step at hand. A second signal ends it at once.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void request_stop(int signal) {
  if (stop_requested.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

struct TrainFlags {
  JobFlags job;
  std::string trace;
  bool json = false;
};

void print_json(const Json& line) {
  std::fputs((json_line(line) + "\n").c_str(), stdout);
  if (std::fflush(stdout) != 0) throw SystemError(std::string("cannot write to standard output: ") + std::strerror(errno));
}

int64_t count_composites(const Module& module) {
  return std::count_if(module.graphs.begin(), module.graphs.end(), [](const Graph& graph) { return !graph.composite.empty(); });
}

/// Graphs of the model that stand for several layers, by the scope that these are in: " · h x 12 (one graph)" of h.0, h.1, ...
std::string repeated_layers(const Module& module) {
  struct Layer {
    GraphId graph;
    std::string scope;
    int64_t count;
  };
  std::vector<Layer> layers;  // in order of their first call
  for (const Node& node : module.graph(module.entry("eval")).nodes) {
    const auto* call = std::get_if<Call>(&node.op);
    if (!call || !module.graph(call->graph).composite.empty()) continue;
    const auto known = std::find_if(layers.begin(), layers.end(), [&](const Layer& layer) { return layer.graph == call->graph; });
    if (known == layers.end()) layers.push_back({call->graph, node.scope.substr(0, node.scope.rfind('.')), 1});
    else ++known->count;
  }
  std::string text;
  for (const Layer& layer : layers)
    if (layer.count > 1) text += fmt::format(" · {} x {} (one graph)", layer.scope, layer.count);
  return text;
}

/// Where the code of the steps came from; nothing without a cache.
std::string cache_summary(const TrainJob& job, const PassLog& log) {
  std::string text;
  for (const PlanRecord& plan : log.plans) {
    if (!job.cache) continue;
    if (plan.is_cached) text += fmt::format("cache   the plan, with the code of its {} forms\n", plan.forms);
    else text += fmt::format("cache   no plan ({}) · code of {} forms made, of {} found\n", plan.why_made, plan.forms_made, plan.forms - plan.forms_made);
  }
  return text;
}

/// What was built, before the first step: model, mesh, what a step sends, memory, where to look.
std::string summary(const TrainJob& job, const Trainer& trainer, const Splits& data) {
  const Module& logical = trainer.logical();
  const Graph& step = logical.graph(logical.entry("step"));
  int64_t nodes = 0;
  for (const Graph& graph : logical.graphs) nodes += static_cast<int64_t>(graph.nodes.size());
  std::string text =
      fmt::format("module  {} · {} parameters in {} tensors{} · {} nodes in {} graphs, {} of them composites · step: forward, backward{}, optimizer{}\n",
                  logical.name, with_commas(trainer.parameter_elements()), trainer.parameter_tensors(), repeated_layers(logical), nodes, logical.graphs.size(),
                  count_composites(logical),
                  trainer.micro_batches() > 1 ? fmt::format(" x {} micro-batches", trainer.micro_batches()) : "",
                  find_input(step, RoleKind::OptimizerState) ? "" : " (no state)");
  const Module& local = trainer.local();
  text += fmt::format("mesh    {} ({}) · a step sends: {}\n", job.mesh.empty() ? "one device" : job.mesh,
                      trainer.rank_count() == 1 ? "no other ranks" : fmt::format("{} ranks as threads", trainer.rank_count()),
                      collectives(local, local.entry("step")).empty() ? "nothing" : stepgraph::text(collectives(local, local.entry("step"))));
  int64_t compile_us = 0;
  for (const PassRecord& pass : trainer.compile_log().passes) compile_us += pass.elapsed_us;
  text +=
      fmt::format("compile {:.0f} ms in {} passes · data {} training and {} test samples · module hash {}\n", static_cast<double>(compile_us) / 1000,
                  trainer.compile_log().passes.size(), with_commas(data.train->size()), with_commas(data.test->size()), trainer.module_hash().substr(0, 12));
  if (const ShapesReport sizes = trainer.sizes(); sizes.compilations > 0) text += "sizes   " + stepgraph::summary(sizes) + "\n";
  return text + cache_summary(job, trainer.compile_log());
}

Json compile_json(const PassLog& log) {
  Json json;
  int64_t us = 0;
  for (const PassRecord& pass : log.passes) us += pass.elapsed_us + pass.verify_us;
  json["ms"] = static_cast<double>(us) / 1000;
  json["plans"] = Json::array();
  for (const PlanRecord& plan : log.plans) {
    Json one;
    one["cached"] = plan.is_cached;
    if (!plan.why_made.empty()) one["why_made"] = printable(plan.why_made);
    one["forms"] = plan.forms;
    one["forms_made"] = plan.forms_made;
    json["plans"].push_back(std::move(one));
  }
  return json;
}

std::string metrics_text(const EvalReport& report) {
  if (!report.loss) return "nothing evaluated";
  std::string text = fmt::format("loss {:.4f}", *report.loss);
  const auto& metrics = report.metrics;
  for (const auto& [metric, value] : metrics)
    text += metric == "accuracy" ? fmt::format("  accuracy {:.2f} %", value * 100) : fmt::format("  {} {:.4g}", metric, value);
  return text;
}

Json last_line(const TrainJob& job, const JobResult& result) {
  Json line;
  line["test_accuracy"] = nullptr;  // for a model without accuracy, and where nothing was evaluated
  line["test_loss"] = nullptr;
  if (result.last_eval) {
    for (const auto& [metric, value] : result.last_eval->metrics) line["test_" + printable(metric)] = value;
    if (result.last_eval->loss) line["test_loss"] = *result.last_eval->loss;
  }
  line["step_ms"] = result.step_ms_median;
  line["ranks"] = result.trainer->rank_count();
  line["peak_bytes"] = result.trainer->peak_bytes();
  line["steps"] = result.trainer->steps_done();
  line["train_seconds"] = result.train_seconds;
  if (result.rss_before_state_bytes > 0) {
    line["compile_seconds"] = result.compile_seconds;
    line["rss_before_state_bytes"] = result.rss_before_state_bytes;
    line["rss_peak_bytes"] = resident_bytes_max();
  }
  line["mesh"] = job.mesh;
  if (job.autocast.dtype) line["precision"] = name(*job.autocast.dtype);
  if (find_input(result.trainer->logical().graph(result.trainer->logical().entry("step")), RoleKind::OptimizerState, applied_steps_name))
    line["skipped"] = result.skipped;
  line["interrupted"] = result.interrupted;
  line["compile"] = compile_json(result.trainer->compile_log());
  return line;
}

class TrainCommand {
 public:
  explicit TrainCommand(const TrainFlags& flags) : flags_(flags), text_(read_job(flags.job)) {}

  void run() {
    check(text_.job);
    JobObserver observer;
    observer.started = [this](const Trainer& trainer, const Splits& data, int64_t total) {
      // Before, while the model is built, there is nothing to save: a signal ends the command as it ends any other.
      std::signal(SIGINT, request_stop);
      std::signal(SIGTERM, request_stop);
      // A reader that has seen enough must not take the training with it: the write fails, and what was trained is saved.
      std::signal(SIGPIPE, SIG_IGN);
      started(trainer, data, total);
    };
    observer.stepped = [this](const StepResult& step, int64_t epoch, int64_t rows) { stepped(step, epoch, rows); };
    observer.evaluated = [this](const EvalReport& report) { evaluated(report); };
    observer.saved = [this](const std::string& path) { say("saved   " + path); };
    observer.note = [this](const std::string& message) { say("note    " + message); };
    try_curve();
    if (!flags_.trace.empty()) {
      check_writable(flags_.trace);
      text_.job.trace = trace_.sink();
    }
    const JobResult result = run_job(text_.job, observer, &stop_requested);
    if (progress_) progress_->finish();
    if (!flags_.trace.empty()) trace_.write(flags_.trace);
    const std::exception_ptr curve_problem = write_curve(result);
    if (flags_.json)
      print_json(last_line(text_.job, result));
    else
      finish(result, !curve_problem);
    if (curve_problem) std::rethrow_exception(curve_problem);
  }

 private:
  void say(const std::string& line) {
    if (progress_ && !flags_.json)
      progress_->print(printable(line, true));
    else
      std::fprintf(stderr, "%s\n", printable(line, true).c_str());
  }

  void started(const Trainer& trainer, const Splits& data, int64_t total) {
    skipped_ = trainer.skipped_steps();
    if (flags_.json) return;
    std::fputs(summary(text_.job, trainer, data).c_str(), stdout);
    std::fflush(stdout);
    progress_ = std::make_unique<Progress>("step", total, trainer.steps_done());
  }

  void stepped(const StepResult& step, int64_t epoch, int64_t rows) {
    const double rate = static_cast<double>(rows) * 1e9 / std::max<double>(1, static_cast<double>(step.elapsed_ns));
    if (flags_.json) {
      Json line;
      line["step"] = step.step;
      line["loss"] = step.loss;
      line["lr"] = step.learning_rate ? Json(*step.learning_rate) : Json();
      line["samples_per_s"] = rate;
      line["elapsed_ms"] = static_cast<double>(step.elapsed_ns) / 1e6;
      line["epoch"] = epoch;
      if (step.loss_scale) line["loss_scale"] = *step.loss_scale, line["skipped"] = step.skipped;
      if (step.gradient_norm) line["gradient_norm"] = *step.gradient_norm;
      for (const auto& [metric, value] : step.metrics) {
        const std::string key = printable(metric);
        line[line.contains(key) ? "metric." + key : key] = value;  // a model may call a number "epoch"
      }
      return print_json(line);
    }
    std::vector<std::string> details = {fmt::format("loss {:.4f}", step.loss), rate_text(rate) + "samples/s", fmt::format("epoch {}", epoch)};
    if (step.learning_rate) details.push_back(fmt::format("lr {:.2e}", *step.learning_rate));
    details.push_back(fmt::format("{:.3g} ms/step", static_cast<double>(step.elapsed_ns) / 1e6));
    skipped_ += step.skipped;
    if (step.loss_scale) details.push_back(fmt::format("scale {:g}", *step.loss_scale));
    if (skipped_ > 0) details.push_back(fmt::format("skipped {}", skipped_));
    progress_->update(step.step + 1, details);
  }

  void evaluated(const EvalReport& report) {
    if (report.loss) held_out_.emplace_back(static_cast<double>(report.step), *report.loss);
    if (!flags_.json) say(fmt::format("eval    step {}  test {}", report.step, metrics_text(report)));
  }

  /// A picture that cannot be written is better known now than after an hour.
  void try_curve() {
    if (!text_.curve.empty()) check_writable(text_.curve);
  }

  bool has_curve(const JobResult& result) const { return !curve_path().empty() && !result.losses.empty(); }

  /// The picture beside the checkpoints is not worth a failed run; one that was asked for is a failure, told when all else is.
  std::exception_ptr write_curve(const JobResult& result) {
    if (!has_curve(result)) return nullptr;
    Curve curve;
    curve.title = printable(text_.job.model.name + " on " + text_.job.data.path.substr(text_.job.data.path.find_last_of('/') + 1));
    curve.first_step = result.first_step;
    curve.losses = result.losses;
    curve.held_out = held_out_;
    try {
      write_file(curve_path(), curve_svg(curve));
    } catch (const Error& problem) {
      if (!text_.curve.empty()) return std::current_exception();
      say(std::string("note    there is no loss curve: ") + problem.what());
      curve_is_missing_ = true;
    }
    return nullptr;
  }

  std::string curve_path() const { return !text_.curve.empty() || text_.job.checkpoint.empty() ? text_.curve : text_.job.checkpoint + "/loss.svg"; }

  void finish(const JobResult& result, bool curve_is_written) {
    const int64_t steps = result.trainer->steps_done() - result.first_step;
    fmt::print("{}  {} steps in {:.1f} s of training, {:.1f} ms a step (median) · peak {} of live values a rank\n", result.interrupted ? "stopped" : "done   ",
               steps, result.train_seconds, result.step_ms_median, bytes_text(static_cast<double>(result.trainer->peak_bytes())));
    if (result.skipped > 0) fmt::print("skipped {} steps whose gradients were not finite under the loss scale\n", result.skipped);
    if (result.last_eval) fmt::print("test    {}\n", metrics_text(*result.last_eval));
    if (result.interrupted && !text_.job.checkpoint.empty())
      fmt::print("resume  the same command with --resume goes on from step {}\n", result.trainer->steps_done());
    if (has_curve(result) && curve_is_written && !curve_is_missing_) fmt::print("curve   {}\n", printable(curve_path()));
  }

  const TrainFlags& flags_;
  JobText text_;
  std::unique_ptr<Progress> progress_;
  TraceFile trace_;
  std::vector<std::pair<double, double>> held_out_;
  int64_t skipped_ = 0;
  bool curve_is_missing_ = false;
};

}  // namespace

void add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* verb = app.add_subcommand("train", "train a model: of the zoo by name, a .sg file, or PyTorch's .pt2");
  flags->job.trains = true;
  add_job_flags(*verb, flags->job);
  verb->add_flag("--json", flags->json, "on standard output only JSON lines: one for each step, and a last one with the results");
  verb->add_option("--trace", flags->trace, "what the last steps did when, for chrome://tracing or Perfetto: a slice an instruction and thread")->type_name("FILE");
  verb->footer(
      "Examples:\n"
      "  stepgraph train --config examples/digits.toml --mesh data=2\n"
      "  stepgraph train --model gpt -o layers=4 -o width=128 -o context=64 --data-kind text --data data/austen.txt --context 64 --steps 500 --lr 1e-3\n"
      "  stepgraph train --model model.pt2 --data train.npz --bind x=image,target=label --epochs 3 --save-weights trained.safetensors\n"
      "  stepgraph train --config examples/gpt.toml --checkpoint runs/gpt --save-every 100 --resume");
  verb->callback([flags] { TrainCommand(*flags).run(); });
}

}  // namespace stepgraph
