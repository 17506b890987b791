// SPDX-License-Identifier: Apache-2.0
// The options of a training job: one table serves TOML job files, command-line flags and --help.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "stepgraph/train/job.h"

namespace stepgraph {

/// What the command knows of a job beyond TrainJob: choices that become part of the optimizer once all are read.
struct JobText {
  TrainJob job;
  std::string curve;  ///< SVG of the loss; empty: beside the checkpoints, if any
};

struct JobOption {
  std::string key;   ///< in TOML: "train.batch"
  std::string flag;  ///< "--batch"
  std::string type;  ///< for --help: "N", "NAME", "FILE", "true|false"
  std::string help;
  std::function<void(JobText&, const std::string& value)> set;  ///< UserError without a place for a bad value
  bool is_switch = false;  ///< true or false; the flag alone means true
};
const std::vector<JobOption>& job_options();

/// Reads a job file. UserError with file, line, and for an unknown key the nearest known one. Paths in the file are relative to the current directory.
void read_job_file(const std::string& path, JobText& job);
/// Model options ("layers=2") and parameter groups ("patterns=*.bias,*.ln_*; weight_decay=0").
void add_model_option(JobText& job, const std::string& assignment);
void add_group(JobText& job, const std::string& description);

}  // namespace stepgraph
