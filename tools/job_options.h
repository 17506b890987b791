// SPDX-License-Identifier: Apache-2.0
// The options of a training job: one table serves TOML job files, command-line flags, --help and docs/jobs.md.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/train/job.h"

namespace stepgraph {

/// An option that was given, by its key in job files.
struct GivenOption {
  std::string key;
  std::string place;  ///< for messages: "--momentum", "job.toml:7: optimizer.momentum"
  bool in_file = false;
  std::string objection;  ///< in a file: why it has no use there, without what flags change
};
/// A job, and what the command alone wants to know.
struct JobText {
  TrainJob job;
  std::vector<GivenOption> given;
  std::string curve;  ///< SVG of the loss; empty: beside the checkpoints, if any
  std::string cache, cache_limit;  ///< of plans and code: a folder or "off", bytes; empty: the user's (cache/cache_place.h)
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

/// Why an option changes nothing in this job: "has no use with optimizer adamw, wanted sgd or rmsprop"; "" if it has a use, or that cannot be known yet.
/// `trains`: the job is run, and not only its model looked at.
std::string objection_to(const std::string& key, const TrainJob& job, bool trains);
/// UserError for an option without use: a flag in the whole job; what a file says there or in the file's own.
void check_use(const JobText& job, bool trains);

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
