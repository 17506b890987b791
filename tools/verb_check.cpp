// SPDX-License-Identifier: Apache-2.0
// stepgraph check: a recorded PyTorch model run again and compared; the compiled program of any model compared with the oracle.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "stepgraph/backend/oracle_check.h"
#include "stepgraph/train/check.h"
#include "tools/job_options.h"
#include "tools/json_line.h"
#include "tools/planned_model.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

using Json = nlohmann::ordered_json;

struct CheckFlags {
  JobFlags job;
  std::string what, program, entry;
  int64_t rows = 20;
  bool json = false, bisect = false;
};

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(std::isnan(value) ? "nan" : "inf"); }

std::string json_text(const CheckReport& report) {
  Json line;
  line["name"] = report.name;
  line["program"] = report.program;
  line["mesh"] = report.mesh;
  line["ok"] = report.ok();
  line["warnings"] = report.warnings;
  line["rows"] = Json::array();
  for (const CheckRow& row : report.rows) {
    Json entry;
    entry["tensor"] = row.tensor;
    entry["ok"] = row.ok();
    if (!row.problem.empty()) entry["problem"] = row.problem;
    const auto measured = [&](double value) { return row.problem.empty() ? number(value) : Json(nullptr); };  // nothing was compared
    if (!row.of_group) {
      entry["max_abs"] = measured(row.max_abs);
      entry["max_rel"] = measured(row.max_rel);
    }
    entry["rms"] = measured(row.rms);
    entry["allowed"] = measured(row.allowed);
    line["rows"].push_back(entry);
  }
  return json_line(line);
}

/// Whatever the trained model is made of, as `stepgraph show` finds it.
bool is_folder(const std::string& what) { return std::filesystem::is_directory(what); }

bool is_given(const JobText& job, const std::string& key) {
  return std::any_of(job.given.begin(), job.given.end(), [&](const GivenOption& given) { return given.key == key; });
}

CheckRow row_of(const ValueDifference& value) {
  CheckRow row;
  row.tensor = value.name;
  row.max_abs = value.difference, row.rms = value.rms, row.allowed = value.allowed, row.problem = value.problem;
  row.max_rel = value.difference == 0 ? 0 : value.largest > 0 ? value.difference / value.largest : INFINITY;
  row.ratio = !value.problem.empty() ? INFINITY : value.difference == 0 ? 0 : value.allowed > 0 ? value.difference / value.allowed : INFINITY;
  return row;
}

Json bisect_json(const BisectReport& report) {
  Json json{{"ok", !report.first}, {"values", report.values}, {"compared", report.compared}, {"runs", report.runs}};
  if (!report.first) return json;
  const FirstDifference& first = *report.first;
  json["first"] = {{"value", first.value.name}, {"op", first.op}, {"type", first.type}, {"layer", first.scope}, {"phase", name(first.phase)}, {"place", first.place.known() ? first.place.text() : ""},
                   {"element", first.value.element}, {"found", number(first.value.found)}, {"wanted", number(first.value.wanted)}, {"difference", number(first.value.difference)},
                   {"allowed", number(first.value.allowed)}, {"largest", number(first.value.largest)}, {"alone", first.is_alone}};
  return json;
}

void tell_bisected(const BisectReport& report, const CheckFlags& flags) {
  if (flags.json) std::puts(json_line(bisect_json(report)).c_str());
  else std::fputs(text(report).c_str(), stdout);
  if (report.first) throw CLI::RuntimeError(1);
}

void tell_checked(const CheckReport& report, const CheckFlags& flags) {
  if (flags.json) {
    std::puts(json_text(report).c_str());
  } else {
    for (const std::string& warning : report.warnings) tell("warning", warning);
    std::fputs(text(report, static_cast<size_t>(flags.rows)).c_str(), stdout);
  }
  if (!report.ok()) throw CLI::RuntimeError(1);  // the exit code: nothing went wrong but the numbers
}

void check_recorded(const CheckFlags& flags, const JobText& job) {
  CheckOptions options;
  options.program = flags.program;
  options.mesh = job.job.mesh;
  options.skip = skipped_passes(job.job.skip).compile;
  options.backend.skip = skipped_passes(job.job.skip).plan;
  if (is_given(job, "train.backend")) options.backend.backend = job.job.backend;
  else if (flags.bisect) options.backend.backend = Backend::Full;
  options.backend.threads = static_cast<int>(job.job.threads);
  if (flags.bisect) return tell_bisected(bisect_folder(flags.what, options), flags);
  tell_checked(check_folder(flags.what, options), flags);
}

/// A model on random data: what the compiled program gives beside what the oracle gives.
void check_compiled(const CheckFlags& flags, const JobText& job) {
  if (!flags.program.empty()) throw UserError("--program has no use with a model, wanted a folder of a recorded one");
  if (job.job.backend == Backend::Reference) throw UserError("the reference back end is what others are compared with, wanted --backend eager, segment or full");
  const PlannedModel model(job.job);
  const Module& local = model.local();
  std::string entry = flags.entry;
  for (const char* usual : {"step", "main"})
    if (entry.empty() && local.find_entry(usual)) entry = usual;
  if (entry.empty()) entry = local.entries.at(0).name;
  local.entry(entry);
  const EntryArguments arguments = fitting_arguments(local, entry, job.job.batch, job.job.seed);
  if (flags.bisect) return tell_bisected(find_first_difference(local, entry, arguments, {.backend = model.options(), .tolerance = {}}), flags);
  CheckReport report;
  report.name = local.name;
  report.program = fmt::format("entry {} under {}", entry, name(job.job.backend));
  for (const ValueDifference& value : compare_with_oracle(local, entry, arguments, model.options())) report.rows.push_back(row_of(value));
  std::stable_sort(report.rows.begin(), report.rows.end(), [](const CheckRow& a, const CheckRow& b) { return a.ratio > b.ratio; });
  tell_checked(report, flags);
}

void run_check(CheckFlags flags) {
  if (flags.rows < 0) throw UserError(fmt::format("--rows: found {}, wanted at least 0", flags.rows));
  if (flags.what.empty() && flags.job.model.empty() && flags.job.config.empty())
    throw UserError("check wants a folder with a recorded model, or a model of the zoo or a .sg or .pt2 file to compare with the oracle");
  if (is_folder(flags.what)) return check_recorded(flags, read_job(flags.job));
  if (!flags.what.empty() && !flags.job.model.empty()) throw UserError("found both " + flags.what + " and --model " + flags.job.model);
  if (!flags.what.empty()) flags.job.model = flags.what;
  check_compiled(flags, read_job(flags.job));
}

}  // namespace

void add_check(CLI::App& app) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* verb = app.add_subcommand("check", "compare a recorded PyTorch model, or any model's compiled program, tensor by tensor");
  verb->add_option("what", flags->what,
                   "a folder with a .pt2, data.safetensors and an entry in manifest.json, there or in its parent (docs/check.md): compared with what PyTorch recorded; or a model of the zoo, a "
                   ".sg or a .pt2 file: its compiled program is compared with the oracle on random data")
      ->type_name("FOLDER|MODEL");
  verb->add_option("--program", flags->program, "of a folder: the program to run; else the exported one of the manifest")->type_name("FILE");
  verb->add_option("--entry", flags->entry, "of a model: the entry to run; default: step, or main")->type_name("NAME");
  verb->add_flag("--bisect", flags->bisect, "find the first value of the program, in its order, at which the compiled one leaves the oracle's tolerance");
  verb->add_option("--rows", flags->rows, "rows of the table; 0: all")->type_name("N")->default_str("20");
  verb->add_flag("--json", flags->json, "one JSON line with everything");
  add_job_flags(*verb, flags->job, {"train.batch", "train.seed", "train.mesh", "train.backend", "train.threads", "train.skip"});
  verb->footer(
      "Back ends: a folder is run by the oracle unless --backend says otherwise: what is checked then is the import; with --backend full it is the compiled step.\n"
      "A model's compiled program is compared with the oracle, so it is full unless another one is named.\n"
      "Exit code 1 when a tensor is further off than allowed.\n"
      "Examples:\n"
      "  stepgraph check tests/samples/tiny_gpt --mesh data=2\n"
      "  stepgraph check tests/samples/mlp_gelu --backend full\n"
      "  stepgraph check gpt -o layers=2 -o width=64 --batch 4 --bisect");
  verb->callback([flags] { run_check(*flags); });
}

}  // namespace stepgraph
