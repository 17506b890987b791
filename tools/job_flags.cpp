// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include <algorithm>

#include "tools/job_options.h"
#include "tools/open_cache.h"
#include "tools/verbs.h"

namespace stepgraph {

void add_job_flags(CLI::App& verb, JobFlags& flags, const std::vector<std::string>& shown) {
  verb.add_option("-c,--config", flags.config, "job file in TOML; every option below that names a key is also a key there")->type_name("FILE");
  verb.add_option("-m,--model", flags.model, "a model of the zoo, a .sg file, or a .pt2 file of torch.export.save (model.name)")->type_name("NAME");
  verb.add_option("-o,--option", flags.model_options, "option of the model, e.g. -o layers=2; may be repeated ([model])")->type_name("NAME=VALUE");
  verb.add_option("--group", flags.groups, "parameter group: 'patterns=*.bias; rate_factor=2; weight_decay=0; frozen=false' (optimizer.groups)")
      ->type_name("TEXT");
  for (const JobOption& option : job_options()) {
    auto keep = [&flags, flag = option.flag](const std::vector<std::string>& values) {
      flags.values.emplace_back(flag, values.empty() ? "true" : values.back());
    };
    CLI::Option* made = verb.add_option_function<std::vector<std::string>>(option.flag, keep, option.help + " (" + option.key + ")");
    const std::string section = option.key.substr(0, option.key.find('.'));
    const bool is_shown = shown.empty() || std::any_of(shown.begin(), shown.end(), [&](const std::string& word) { return word == section || word == option.key; });
    made->take_last()->allow_extra_args(false)->group(is_shown ? "[" + section + "] in a job file" : "");
    made->option_text(option.type + (option.default_value.empty() ? "" : "  [" + option.default_value + "]"));
    if (option.form == ValueForm::Switch)
      made->expected(0, 1)->default_str("true");  // what the flag alone means
    else
      made->expected(1)->type_name(option.type);
  }
}

JobText read_job(const JobFlags& flags) {
  JobText job;
  if (!flags.config.empty()) read_job_file(flags.config, job);
  if (!flags.model.empty()) {
    if (flags.model != job.job.model.name) job.job.model.options.clear();
    job.job.model.name = flags.model;
  }
  for (const std::string& option : flags.model_options) add_model_option(job, option);
  for (const std::string& group : flags.groups) add_group(job, group);
  for (const auto& [flag, value] : flags.values) {
    for (const JobOption& option : job_options()) {
      if (option.flag != flag) continue;
      try {
        option.set(job, value);
        job.given.push_back({option.key, flag, false, ""});
      } catch (const UserError& problem) {
        throw UserError(flag + ": " + problem.what());
      }
    }
  }
  check_use(job, flags.trains);
  job.job.cache = open_cache(job.cache, job.cache_limit);
  return job;
}

}  // namespace stepgraph
