// SPDX-License-Identifier: Apache-2.0
// stepgraph explain: what became of a model on its way to what runs, and why.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "stepgraph/base/nearest.h"
#include "tools/explain.h"
#include "tools/job_options.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

/// A row a subject.
constexpr ExplainSubject subjects[] = {
    {"fusion", "which operations are in which kernel, what that saves, and what was not put together and why", explain_fusion},
    {"memory", "what lives in memory when, and what forward keeps for backward", explain_memory},
    {"evaluate", "which operations have no kernel and run in the interpreter inside the plan, and why", explain_evaluate},
    {"shapes", "how far sizes go, for which the plan is made, and what sizes that are symbols cost", explain_shapes},
};

struct ExplainFlags {
  JobFlags job;
  std::string subject, model;
  ExplainRequest request;
};

void explain(ExplainFlags flags) {
  if (!flags.model.empty() && !flags.job.model.empty()) throw UserError("found both " + flags.model + " and --model " + flags.job.model);
  if (!flags.model.empty()) flags.job.model = flags.model;
  const auto found = std::find_if(std::begin(subjects), std::end(subjects), [&](const ExplainSubject& subject) { return subject.name == flags.subject; });
  if (found == std::end(subjects)) {
    std::vector<std::string> names;
    for (const ExplainSubject& subject : subjects) names.emplace_back(subject.name);
    throw UserError("explain: there is no subject '" + flags.subject + "'; nearest are " + nearest_names(flags.subject, names, names.size()));
  }
  if (flags.request.rows < 0) throw UserError(fmt::format("--rows: found {}, wanted at least 0", flags.request.rows));
  if (!flags.request.map.empty() && flags.subject != "memory") throw UserError("--map has no use with explain " + flags.subject + ", wanted explain memory");
  flags.request.job = read_job(flags.job).job;
  found->explain(flags.request);
}

}  // namespace

void check_entry(const ExplainRequest& request, const std::vector<std::string>& entries) {
  if (request.entry.empty() || std::find(entries.begin(), entries.end(), request.entry) != entries.end()) return;
  throw UserError("--entry: the plan has no entry '" + request.entry + "'; nearest are " + nearest_names(request.entry, entries));
}

std::string cut(std::string text, size_t columns) {
  if (text.size() > columns) text = text.substr(0, columns - std::min<size_t>(columns, 3)) + "...";
  return text;
}

size_t rows_of(const ExplainRequest& request, size_t count) { return request.rows == 0 ? count : std::min(count, static_cast<size_t>(request.rows)); }

void print_rest(size_t shown, size_t count) {
  if (shown < count) fmt::print("  ... and {} more (--rows 0 shows all)\n", count - shown);
}

void add_explain(CLI::App& app) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* verb = app.add_subcommand("explain", "say why the program came out as it did: fusion, memory, evaluate, shapes");
  std::string about = "what to explain.";
  for (const ExplainSubject& subject : subjects) about += fmt::format(" {}: {}.", subject.name, subject.help);
  verb->add_option("subject", flags->subject, about)->type_name("SUBJECT")->required();
  verb->add_option("model", flags->model, "a model of the zoo, a .sg file, or a .pt2 file of torch.export.save")->type_name("MODEL|FILE");
  verb->add_option("--entry", flags->request.entry, "one entry only: init, step, eval, main")->type_name("NAME");
  verb->add_option("--rows", flags->request.rows, "rows of each table; 0: all")->type_name("N")->default_str("20");
  verb->add_option("--map", flags->request.map, "memory: draw the arena over the step as SVG")->type_name("FILE.svg");
  verb->add_flag("--json", flags->request.json, "one JSON object with everything");
  add_job_flags(*verb, flags->job);
  verb->footer(
      "Examples:\n"
      "  stepgraph explain fusion gpt -o layers=2 --entry step\n"
      "  stepgraph explain memory --config examples/digits.toml --map memory.svg\n"
      "  stepgraph explain evaluate model.pt2 --json");
  verb->callback([flags] { explain(*flags); });
}

}  // namespace stepgraph
