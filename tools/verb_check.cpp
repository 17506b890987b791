// SPDX-License-Identifier: Apache-2.0
// stepgraph check: a recorded PyTorch model run again and compared.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "stepgraph/train/check.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

using Json = nlohmann::ordered_json;

struct CheckFlags {
  std::string folder, backend = "reference";
  CheckOptions options;
  int64_t rows = 20;
  bool json = false;
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
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void run_check(const CheckFlags& flags) {
  if (flags.backend != "reference") throw UserError("--backend: found '" + flags.backend + "', wanted reference");
  if (flags.rows < 0) throw UserError(fmt::format("--rows: found {}, wanted at least 0", flags.rows));
  const CheckReport report = check_folder(flags.folder, flags.options);
  if (flags.json) {
    std::puts(json_text(report).c_str());
  } else {
    for (const std::string& warning : report.warnings) tell("warning", warning);
    std::fputs(text(report, static_cast<size_t>(flags.rows)).c_str(), stdout);
  }
  if (!report.ok()) throw CLI::RuntimeError(1);  // the exit code: nothing went wrong but the numbers
}

}  // namespace

void add_check(CLI::App& app) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* verb = app.add_subcommand("check", "run a recorded PyTorch model and compare it tensor by tensor");
  verb->add_option("folder", flags->folder, "a folder with a .pt2, data.safetensors and an entry in manifest.json, there or in its parent (docs/check.md)")
      ->type_name("FOLDER")
      ->required();
  verb->add_option("--program", flags->options.program, "the program to run; else the exported one of the manifest")->type_name("FILE");
  verb->add_option("--backend", flags->backend, "reference")->type_name("NAME");
  verb->add_option("--mesh", flags->options.mesh, "mesh of ranks, e.g. data=2")->type_name("MESH");
  verb->add_option("--skip", flags->options.skip, "optional passes to leave out")->type_name("PASS")->delimiter(',');
  verb->add_option("--rows", flags->rows, "rows of the table; 0: all")->type_name("N")->default_str("20");
  verb->add_flag("--json", flags->json, "one JSON line with all rows");
  verb->footer(
      "Exit code 1 when a tensor is further off than the manifest allows.\n"
      "Examples:\n"
      "  stepgraph check tests/samples/tiny_gpt --mesh data=2\n"
      "  stepgraph check tests/samples/tiny_gpt --program model_core.pt2 --json");
  verb->callback([flags] { run_check(*flags); });
}

}  // namespace stepgraph
