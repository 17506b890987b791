// SPDX-License-Identifier: Apache-2.0
// stepgraph show: a module at any stage, as text or as a picture.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "stepgraph/backend/backend.h"
#include "stepgraph/backend/fit_budget.h"
#include "stepgraph/base/nearest.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/compile/ir/graphviz.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/program/plan_text.h"
#include "stepgraph/train/models/models.h"
#include "tools/job_options.h"
#include "tools/planned_model.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

struct ShowFlags {
  JobFlags job;
  std::string what, at = "step", entry;
  bool dot = false, summary = false, places = false, list = false;
};

bool is_flat_pass(const std::string& at) { return std::find(flat_pass_names().begin(), flat_pass_names().end(), at) != flat_pass_names().end(); }

/// A text that is compiled already is shown as it is, or after the passes that follow: what came before cannot be made of it.
Module as_it_is(Module module, const ShowFlags& flags, const TrainJob& job) {
  if (module.stage == Stage::Local && is_flat_pass(flags.at)) return flatten_for_kernels(std::move(module), {}, nullptr, flags.at);
  if (flags.at != "step" && flags.at != name(module.stage))
    throw UserError(fmt::format("{} is at stage {}: it can be shown at that stage alone, found --at {}", job.model.name, name(module.stage), flags.at));
  if (!job.mesh.empty() && parse_mesh(job.mesh).text() != module.mesh.text())
    throw UserError(fmt::format("{} is compiled for mesh {}, found --mesh {}", job.model.name, module.mesh.text(), job.mesh));
  return module;
}

/// All that --at takes but stages and the plan, in the order of a compilation.
std::vector<std::string> pass_names() {
  std::vector<std::string> names = {"outline", "differentiate", "accumulate", "scale", "clip", "optimizer", "simplify", "cse", "propagate", "partition"};
  names.insert(names.end(), flat_pass_names().begin(), flat_pass_names().end());
  return names;
}

void check_stage_name(const std::string& at) {
  std::vector<std::string> names = {"forward", "step", "sharded", "local"};
  const std::vector<std::string> passes = pass_names();
  names.insert(names.end(), passes.begin(), passes.end());
  names.emplace_back("plan");
  if (std::find(names.begin(), names.end(), at) == names.end())
    throw UserError("--at: there is no stage or pass '" + at + "'; nearest are " + nearest_names(at, names));
}

std::string last_pass(const std::string& at) {
  if (at == "step") return "optimizer";
  if (at == "sharded") return "propagate";
  return at == "local" ? "partition" : at;
}

/// A file that is no model to train is shown as it is at `step`.
Module at_stage(Module module, const ShowFlags& flags, const TrainJob& job) {
  if (module.stage != Stage::Logical) return as_it_is(std::move(module), flags, job);
  const bool is_step = module.find_entry("step").has_value();
  if (flags.at == "forward" && is_step) throw UserError(job.model.name + " holds a whole training step already: there is no stage forward to show");
  CompileOptions options = compile_options(job);
  if (is_step || !module.find_entry("init") || !module.find_entry("forward")) options.training.reset();
  if (flags.at == "forward" || (flags.at == "step" && !options.training)) return module;
  if (is_flat_pass(flags.at)) return flatten_for_kernels(compile(std::move(module), options), {}, nullptr, flags.at);
  options.stop_at = last_pass(flags.at);
  return compile(std::move(module), options);
}

void print_summary(const Module& module) {
  fmt::print("module {} · stage {} · hash {}\n", module.name, name(module.stage), module_hash(module).text());
  for (const Entry& entry : module.entries) {
    const Graph& graph = module.graph(entry.graph);
    fmt::print("entry {}: {} inputs, {} nodes, {} outputs", entry.name, graph.inputs.size(), graph.nodes.size(), graph.outputs.size());
    if (module.stage == Stage::Local) fmt::print(" · sends {}", stepgraph::text(collectives(module, entry.graph)));
    fmt::print("\n");
  }
  std::map<std::string, int64_t> calls;
  std::map<std::string, int64_t> ops;
  for (const Graph& graph : module.graphs)
    for (const Node& node : graph.nodes) {
      ++ops[std::string(name(node.op))];
      for (GraphId callee : called_graphs(node.op)) ++calls[module.graph(callee).name];
    }
  fmt::print("graphs:\n");
  for (const Graph& graph : module.graphs) {
    const auto saved = std::count_if(graph.outputs.begin(), graph.outputs.end(), [](const GraphOutput& output) { return output.role.kind == RoleKind::Saved; });
    fmt::print("  {:<40} {:>5} nodes  used {} times{}\n", graph.name, graph.nodes.size(), calls[graph.name],
               saved > 0 ? fmt::format("  keeps {} values", saved) : "");
  }
  fmt::print("operators:\n");
  for (const auto& [op, count] : ops) fmt::print("  {:<28} {}\n", op, count);
}

std::string price_text(Rematerialization::Price price) {
  switch (price) {
    case Rematerialization::Price::Bandwidth: return "by bandwidth";
    case Rematerialization::Price::FourTimes: return "4 times that";
    case Rematerialization::Price::AnyWithoutCalls: return "any, no calls";
    case Rematerialization::Price::SixteenTimes: return "16 times that";
    case Rematerialization::Price::SixtyFourTimes: return "64 times that";
    case Rematerialization::Price::Any: return "any";
  }
  throw InternalError("unknown price");
}

/// What could be made again for backward, and what was chosen.
void print_budget(const BudgetReport& report) {
  constexpr double mib = 1 << 20;
  if (report.rungs.empty()) return;
  fmt::print("rematerialize: {} ways\n   price of a byte  of     layers  planned MiB    arena MiB  kept for backward   more time\n", report.rungs.size());
  for (size_t i = 0; i < report.rungs.size(); ++i) {
    const BudgetRung& rung = report.rungs[i];
    const std::string kept = rung.read_later_bytes > 0 ? fmt::format("{:.1f} %", 100 * static_cast<double>(rung.kept_bytes) / static_cast<double>(rung.read_later_bytes)) : "100 %";
    fmt::print("{}  {:<15} {:>5} {:>7} {:>12.1f} {:>12.1f} {:>18} {:>8.1f} ms\n", i == report.chosen ? "*" : " ", rung.how ? price_text(rung.how->price) : "off",
               rung.how ? fmt::format("{:.0f} %", 12.5 * rung.how->eighths) : "", rung.how ? fmt::format("{}", rung.how->layers) : "", static_cast<double>(rung.memory.total()) / mib, static_cast<double>(rung.memory.arena) / mib, kept, rung.seconds * 1e3);
  }
}

/// What each entry runs, and what of it has no kernel.
void print_plan_summary(const StepPlan& plan, const BudgetReport& report) {
  fmt::print("plan: {} states, {} forms, {} threads, freeze {}\n", plan.states.size(), plan.forms.size(), plan.target.threads, plan.freeze_hash);
  const PlannedMemory memory = planned_memory(plan);
  fmt::print("memory: {} bytes: states {}, constants {}, arena {}, private to threads {}\n", memory.total(), memory.states, memory.constants, memory.arena, memory.threads);
  print_budget(report);
  for (const PlanEntry& entry : plan.entries) {
    fmt::print("entry {}: {} instructions, {} of them after the commit; arena {} bytes\n", entry.name, entry.instructions.size(),
               entry.instructions.size() - static_cast<size_t>(entry.commit_begin), entry.arena_bytes);
    for (size_t i = 0; i < entry.instructions.size(); ++i) {
      const Instruction& instruction = entry.instructions[i];
      const auto* form = std::get_if<FormCall>(&instruction.op);
      const char* kind = form != nullptr ? "form" : std::holds_alternative<EvaluateCall>(instruction.op) ? "evaluate" : "call";
      fmt::print("  {:>4} {:<8} {:<10} {}{}{}{}\n", i, form != nullptr ? fmt::format("form {}", form->form) : kind, name(instruction.phase), instruction.label,
                 instruction.one_thread ? " (one thread)" : "", instruction.scope.empty() ? "" : " · ", instruction.scope);
    }
  }
}

void list_models() {
  for (const ModelInfo& model : models()) {
    fmt::print("{}: {}\n", model.name, model.help);
    for (const ModelOption& option : model.options) fmt::print("  -o {}={:<10} {}\n", option.name, option.default_value, option.help);
  }
}

void show(ShowFlags flags) {
  if (flags.list) return list_models();
  if (!flags.what.empty() && !flags.job.model.empty()) throw UserError("found both " + flags.what + " and --model " + flags.job.model);
  if (!flags.what.empty()) flags.job.model = flags.what;
  check_stage_name(flags.at);
  const TrainJob job = read_job(flags.job).job;
  if (flags.at == "plan") {
    PlanReport report;
    const StepPlan plan = PlannedModel(job).plan(flags.summary ? &report : nullptr);
    if (flags.summary) print_plan_summary(plan, report.budget);
    else std::fputs(stepgraph::text(plan).c_str(), stdout);
    return;
  }
  Module module = at_stage(read_model(job), flags, job);
  if (flags.summary) {
    if (!flags.entry.empty()) module.entries = {{flags.entry, module.entry(flags.entry)}};
    return print_summary(prune_graphs(std::move(module)));
  }
  PrintOptions options;
  options.places = options.scopes = flags.places;
  if (flags.entry.empty() && !flags.dot) {
    if (is_pt2(job.model.name) && module.stage == Stage::Logical)
      std::fprintf(stderr, "note    the text holds no weights: trained from it, the model starts from zeros\n");
    std::fputs(print_module(module, options).c_str(), stdout);
    return;
  }
  const GraphId graph = flags.entry.empty() ? (module.find_entry("step") ? module.entry("step") : module.entries.at(0).graph) : module.entry(flags.entry);
  std::fputs(flags.dot ? graphviz(module, graph).c_str() : print_graph(module, graph, options).c_str(), stdout);
}

}  // namespace

void add_show(CLI::App& app) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* verb = app.add_subcommand("show", "print a module at any stage: text, Graphviz, or a summary");
  verb->add_option("what", flags->what, "a model of the zoo, a .sg file, or a .pt2 file of torch.export.save")->type_name("MODEL|FILE");
  verb->add_option("--at", flags->at,
                   fmt::format("forward, step (default: after optimizer), sharded, local, or the name of a pass: {}; or plan: what runs", fmt::join(pass_names(), ", ")))
      ->type_name("STAGE");
  verb->add_option("--entry", flags->entry, "one entry only: init, step, eval, forward, main")->type_name("NAME");
  verb->add_flag("--dot", flags->dot, "Graphviz: pipe into dot -Tsvg");
  verb->add_flag("--summary", flags->summary, "sizes, graphs and their uses, operators, what is sent");
  verb->add_flag("--places", flags->places, "with source place, layer and phase of each node");
  verb->add_flag("--models", flags->list, "list the zoo with all options");
  add_job_flags(*verb, flags->job);
  verb->footer(
      "Examples:\n"
      "  stepgraph show gpt -o layers=2 --at step --summary\n"
      "  stepgraph show --config examples/digits.toml --mesh data=2 --at local --entry step\n"
      "  stepgraph show mlp --dot --entry forward --at forward | dot -Tsvg > mlp.svg");
  verb->callback([flags] { show(*flags); });
}

}  // namespace stepgraph
