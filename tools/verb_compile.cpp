// SPDX-License-Identifier: Apache-2.0
// stepgraph compile: a model becomes the file of a plan, which train and run take.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "stepgraph/backend/given_plan.h"
#include "stepgraph/backend/plan_cache.h"
#include "stepgraph/backend/run_once.h"
#include "stepgraph/base/file.h"
#include "stepgraph/base/printable.h"
#include "tools/job_options.h"
#include "tools/json_line.h"
#include "tools/progress.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

using Json = nlohmann::ordered_json;

struct CompileFlags {
  JobFlags job;
  std::string what, file, entry;
  bool json = false;
};

int64_t clock_us() { return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Compiled {
  TrainerProgram program;
  PassLog log;
};

/// A training step, or what `run` runs of a module without one.
Compiled compile_job(const TrainJob& job, const std::string& entry) {
  const bool is_text = job.model.name.ends_with(".sg");
  const TrainerOptions options = trainer_options(job);
  BuiltModel model = is_text ? read_job_model(job) : build_job_model(job);
  const bool trains = model.module.find_entry("forward") || model.module.find_entry("step");
  if (!entry.empty() || !trains) {
    if (!is_text) throw UserError("--entry: " + job.model.name + " is trained as a whole; a single entry is compiled of a .sg file");
    if (!entry.empty() || model.module.find_entry("main")) return {{run_program(model.module, entry.empty() ? "main" : entry), options.backend}, {}};
    throw UserError(job.model.name + " has no entry forward, step or main: name one with --entry");
  }
  if (is_text) model = build_job_model(job);
  Compiled compiled{{}, std::move(model.log)};
  compiled.log.clock_us = clock_us;
  compiled.program = trainer_program(model.module, options, &compiled.log);
  return compiled;
}

int64_t state_bytes(const StepPlan& plan) {
  int64_t bytes = 0;
  for (const PlanState& state : plan.states) {
    SymbolValues first;
    for (const MeshAxis& axis : plan.mesh.axes) first["coord." + axis.name] = 0;
    int64_t count = 1;
    for (const Dim& dim : state.sizes) count *= evaluate(plan.symbols.expand(dim), first);
    bytes += count * static_cast<int64_t>(size_bytes(state.dtype));
  }
  return bytes;
}

Json passes_json(const PassLog& log) {
  Json passes = Json::array();
  for (const PassRecord& pass : log.passes) {
    Json one;
    one["name"] = pass.name;
    one["ms"] = static_cast<double>(pass.elapsed_us) / 1000;
    one["verify_ms"] = static_cast<double>(pass.verify_us) / 1000;
    one["before"] = pass.nodes_before;
    one["after"] = pass.nodes_after;
    passes.push_back(std::move(one));
  }
  return passes;
}

Json plan_json(const StepPlan& plan, const PassLog& log) {
  Json json;
  json["passes"] = passes_json(log);
  json["entries"] = Json::array();
  for (const PlanEntry& entry : plan.entries) {
    Json one;
    one["name"] = entry.name;
    one["instructions"] = entry.instructions.size();
    one["arena_bytes"] = entry.arena_bytes;
    json["entries"].push_back(std::move(one));
  }
  json["forms"] = plan.forms.size();
  json["forms_made"] = log.plans.back().forms_made;
  json["cached"] = log.plans.back().is_cached;
  json["states"] = plan.states.size();
  json["state_bytes"] = state_bytes(plan);
  return json;
}

void print_plan(const StepPlan& plan, const PassLog& log) {
  fmt::print("{:<16} {:>9} {:>9}  nodes\n", "pass", "ms", "verify ms");
  int64_t us = 0;
  for (const PassRecord& pass : log.passes) {
    us += pass.elapsed_us + pass.verify_us;
    fmt::print("{:<16} {:>9.1f} {:>9.1f}  {} -> {}\n", pass.name, static_cast<double>(pass.elapsed_us) / 1000, static_cast<double>(pass.verify_us) / 1000,
               pass.nodes_before, pass.nodes_after);
  }
  fmt::print("{:<16} {:>9.1f}\n", "all", static_cast<double>(us) / 1000);
  for (const PlanEntry& entry : plan.entries)
    fmt::print("entry   {:<8} {:>5} instructions, arena {}\n", entry.name, entry.instructions.size(), bytes_text(static_cast<double>(entry.arena_bytes)));
  const PlanRecord& record = log.plans.back();
  const std::string found = record.is_cached ? "the plan is the cache's"
                                             : fmt::format("code of {} made, of {} found in the cache", record.forms_made, record.forms - record.forms_made);
  fmt::print("forms   {}: {}\nstates  {}, {}\n", plan.forms.size(), found, plan.states.size(), bytes_text(static_cast<double>(state_bytes(plan))));
}

void compile_to_file(CompileFlags flags) {
  if (!flags.what.empty() && !flags.job.model.empty()) throw UserError("found both " + flags.what + " and --model " + flags.job.model);
  if (!flags.what.empty()) flags.job.model = flags.what;
  const TrainJob job = read_job(flags.job).job;
  if (job.model.name.empty()) throw UserError("no model is given");
  if (job.backend == Backend::Reference) throw UserError("the reference back end has no plan, wanted --backend eager, segment or full");
  if (!job.plan.empty()) throw UserError("--plan: has no use where a plan is made; the file that is written is --out");
  if (!flags.file.empty()) check_writable(flags.file);
  Compiled compiled = compile_job(job, flags.entry);
  compiled.log.clock_us = clock_us;
  const Module& local = compiled.program.local;
  BackendOptions& options = compiled.program.backend;
  for (const Symbol& symbol : local.symbols.all())
    if (symbol.kind == SymbolKind::Size && symbol.maximum == INT64_MAX) options.largest.try_emplace(symbol.name, job.batch);
  announce_rest(options, local.symbols);
  const Target target = target_of(options, static_cast<int>(local.mesh.device_count()));
  const StepPlan plan = compile_plan(local, options, target, &compiled.log);
  if (!flags.file.empty()) write_given_plan(flags.file, plan, plan_key(local, options, target));
  if (flags.json) {
    Json json = plan_json(plan, compiled.log);
    if (!flags.file.empty()) json["file"] = printable(flags.file);
    std::puts(json_line(json).c_str());
    return;
  }
  print_plan(plan, compiled.log);
  if (!flags.file.empty()) fmt::print("plan    {}, {}\n", printable(flags.file), bytes_text(static_cast<double>(FileReader(flags.file).bytes())));
}

}  // namespace

void add_compile(CLI::App& app) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App* verb = app.add_subcommand("compile", "make the plan of a model, with its code: passes, times, sizes, and a file for train --plan and run --plan");
  verb->add_option("what", flags->what, "a model of the zoo, a .sg file, or a .pt2 file of torch.export.save")->type_name("MODEL|FILE");
  verb->add_option("--out", flags->file, "the file of the plan; without it nothing is written")->type_name("FILE");
  verb->add_option("--entry", flags->entry, "of a .sg file: the one entry that run --plan is to run; default: main, where nothing is to be trained")
      ->type_name("NAME");
  verb->add_flag("--json", flags->json, "one JSON line");
  add_job_flags(*verb, flags->job);
  verb->footer(
      "Examples:\n"
      "  stepgraph compile --config examples/digits.toml --out digits.plan\n"
      "  stepgraph train --config examples/digits.toml --plan digits.plan\n"
      "  stepgraph compile gpt -o layers=12 --batch 8\n"
      "A plan is of its model, options, machine and build of Stepgraph: others are refused, naming what differs. Batches may be of any size.");
  verb->callback([flags] { compile_to_file(*flags); });
}

}  // namespace stepgraph
