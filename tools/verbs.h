// SPDX-License-Identifier: Apache-2.0
// The verbs of the `stepgraph` command, a file each. Each adds its sub-command with options and what to run.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace stepgraph {

struct JobText;

void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_generate(CLI::App& app);
void add_run(CLI::App& app);
void add_show(CLI::App& app);
void add_explain(CLI::App& app);
void add_compile(CLI::App& app);
void add_check(CLI::App& app);
void add_cache(CLI::App& app);
void add_doctor(CLI::App& app);
void add_version(CLI::App& app);

/// A line on standard error: "note    ...".
void tell(std::string_view what, std::string_view message);

// shared by the verbs that read a job (job_flags.cpp)
/// What the command line says of a job: applied over the job file once everything is read.
struct JobFlags {
  std::string config;
  std::vector<std::pair<std::string, std::string>> values;  // flag, value
  std::vector<std::string> model_options, groups;
  std::string model;
  bool trains = false;  ///< the verb runs the job
};
/// --config, --model, -o, --group and every option of the job table; --help shows those of the given sections (all: none given), the rest is accepted
/// too, so that a verb takes the flags that its run was trained with.
void add_job_flags(CLI::App& verb, JobFlags& flags, const std::vector<std::string>& shown = {});
/// Job file first, flags over it.
JobText read_job(const JobFlags& flags);

}  // namespace stepgraph
