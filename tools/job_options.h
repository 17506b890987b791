// SPDX-License-Identifier: Apache-2.0
// The options of a training job: one table serves TOML job files, command-line flags, --help and docs/jobs.md.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/train/job.h"

namespace stepgraph {

/// A job, and what the command alone wants to know.
struct JobText {
  TrainJob job;
  std::string curve;  ///< SVG of the loss; empty: beside the checkpoints, if any
};

/// How a value is written in TOML. On the command line it is always a word; the elements of a list have commas between them.
enum class ValueForm : uint8_t { Word, Number, Switch, List };

struct JobOption {
  std::string key;            ///< in TOML: "train.batch"
  std::string flag;           ///< "--batch"
  std::string type;           ///< for --help: "N", "NAME", "FILE", "true|false"
  std::string default_value;  ///< for --help; empty: none
  std::string help;
  ValueForm form = ValueForm::Word;                             ///< Switch: the flag alone means true
  std::function<void(JobText&, const std::string& value)> set;  ///< UserError without a place for a bad value
};
const std::vector<JobOption>& job_options();

/// One key of a parameter group: patterns, rate_factor, weight_decay, frozen. UserError for another one.
void set_group_key(ParameterGroup& group, const std::string& key, const std::string& value);
const std::vector<std::string>& group_keys();

// command line
/// "layers=2"
void add_model_option(JobText& job, const std::string& assignment);
/// "patterns=*.bias,*.ln_*; weight_decay=0"
void add_group(JobText& job, const std::string& description);

// job files (job_file.cpp)
/// Paths in the file are relative to the current directory. UserError "FILE:LINE: KEY: ..."; for an unknown key it names the nearest known one.
void read_job_file(const std::string& path, JobText& job);
/// The same from the text of a file called `name`.
void read_job_text(std::string_view content, const std::string& name, JobText& job);

}  // namespace stepgraph
