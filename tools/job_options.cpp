// SPDX-License-Identifier: Apache-2.0
#include "tools/job_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "stepgraph/base/file.h"
#include "stepgraph/base/nearest.h"

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

namespace stepgraph {
namespace {

int64_t integer(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw UserError("found '" + text + "', wanted an integer");
  return value;
}

double real(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size() || !std::isfinite(value)) throw UserError("found '" + text + "', wanted a number");
  return value;
}

bool truth(const std::string& text) {
  if (text == "true" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "no" || text == "0") return false;
  throw UserError("found '" + text + "', wanted true or false");
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    const size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    if (first != std::string::npos) parts.push_back(part.substr(first, last - first + 1));
  }
  return parts;
}

std::vector<int64_t> integers(const std::string& text) {
  std::vector<int64_t> values;
  for (const std::string& part : split(text, ',')) values.push_back(integer(part));
  return values;
}

template <class Kind>
Kind choice(const std::string& text, const std::vector<std::pair<std::string, Kind>>& choices) {
  std::string known;
  for (const auto& [choice_name, kind] : choices) {
    if (choice_name == text) return kind;
    known += (known.empty() ? "" : ", ") + choice_name;
  }
  throw UserError("found '" + text + "', wanted one of " + known);
}

JobOption number(std::string key, std::string flag, std::string help, std::function<int64_t&(TrainJob&)> field) {
  return {std::move(key), std::move(flag), "N", std::move(help), [field](JobText& job, const std::string& value) { field(job.job) = integer(value); }};
}
JobOption decimal(std::string key, std::string flag, std::string help, std::function<double&(TrainJob&)> field) {
  return {std::move(key), std::move(flag), "X", std::move(help), [field](JobText& job, const std::string& value) { field(job.job) = real(value); }};
}
JobOption string(std::string key, std::string flag, std::string type, std::string help, std::function<std::string&(TrainJob&)> field) {
  return {std::move(key), std::move(flag), std::move(type), std::move(help), [field](JobText& job, const std::string& value) { field(job.job) = value; }};
}
JobOption yes_no(std::string key, std::string flag, std::string help, std::function<bool&(TrainJob&)> field) {
  return {std::move(key), std::move(flag), "true|false", std::move(help), [field](JobText& job, const std::string& value) { field(job.job) = truth(value); }, true};
}

std::vector<JobOption> data_options() {
  return {
      string("data.kind", "--data-kind", "KIND", "digits, csv, npz, safetensors, text (bytes), tokens_u16 or tokens_u32", [](TrainJob& j) -> std::string& { return j.data.kind; }),
      string("data.path", "--data", "FILE", "the data file", [](TrainJob& j) -> std::string& { return j.data.path; }),
      string("data.test_path", "--test-data", "FILE", "npz, safetensors: the test set; else a part is held out", [](TrainJob& j) -> std::string& { return j.data.test_path; }),
      number("data.context", "--context", "text, tokens: length of a window", [](TrainJob& j) -> int64_t& { return j.data.context; }),
      number("data.stride", "--stride", "text, tokens: distance of training windows; 0: context", [](TrainJob& j) -> int64_t& { return j.data.stride; }),
      number("data.held_out", "--held-out", "text, tokens, npz: the last 1/N is the test set", [](TrainJob& j) -> int64_t& { return j.data.held_out; }),
      number("data.vocabulary", "--data-vocabulary", "text, tokens: larger tokens are refused", [](TrainJob& j) -> int64_t& { return j.data.vocabulary; }),
      {"data.sample", "--sample", "N,N,..", "csv: shape of one input", [](JobText& j, const std::string& v) { j.job.data.sample = integers(v); }},
      decimal("data.scale", "--scale", "csv: inputs are multiplied by it", [](TrainJob& j) -> double& { return j.data.scale; }),
      number("data.test_every", "--test-every", "csv: row i is a test row when i % N is test_rest", [](TrainJob& j) -> int64_t& { return j.data.test_every; }),
      number("data.test_rest", "--test-rest", "see test_every", [](TrainJob& j) -> int64_t& { return j.data.test_rest; }),
  };
}

std::vector<JobOption> optimizer_options() {
  using OptimizerKind = Optimizer::Kind;
  using ScheduleKind = Schedule::Kind;
  return {
      {"optimizer.name", "--optimizer", "NAME", "sgd, adam or adamw, with PyTorch's meaning",
       [](JobText& j, const std::string& v) {
         j.job.optimizer.kind = choice<OptimizerKind>(v, {{"sgd", OptimizerKind::Sgd}, {"adam", OptimizerKind::Adam}, {"adamw", OptimizerKind::AdamW}});
       }},
      decimal("optimizer.lr", "--lr", "learning rate", [](TrainJob& j) -> double& { return j.optimizer.rate.rate; }),
      decimal("optimizer.weight_decay", "--weight-decay", "adamw: decoupled; sgd, adam: added to the gradient", [](TrainJob& j) -> double& { return j.optimizer.weight_decay; }),
      decimal("optimizer.momentum", "--momentum", "sgd", [](TrainJob& j) -> double& { return j.optimizer.momentum; }),
      decimal("optimizer.dampening", "--dampening", "sgd", [](TrainJob& j) -> double& { return j.optimizer.dampening; }),
      yes_no("optimizer.nesterov", "--nesterov", "sgd", [](TrainJob& j) -> bool& { return j.optimizer.nesterov; }),
      decimal("optimizer.beta1", "--beta1", "adam, adamw", [](TrainJob& j) -> double& { return j.optimizer.beta1; }),
      decimal("optimizer.beta2", "--beta2", "adam, adamw", [](TrainJob& j) -> double& { return j.optimizer.beta2; }),
      decimal("optimizer.epsilon", "--epsilon", "adam, adamw", [](TrainJob& j) -> double& { return j.optimizer.epsilon; }),
      {"optimizer.no_decay", "--no-decay", "PATTERNS", "parameters without weight decay, e.g. '*.bias,*.ln_*'",
       [](JobText& j, const std::string& v) { j.job.optimizer.no_decay = split(v, ','); }},
      {"optimizer.freeze", "--freeze", "PATTERNS", "parameters that are not trained",
       [](JobText& j, const std::string& v) {
         ParameterGroup group;
         group.patterns = split(v, ',');
         group.frozen = true;
         j.job.optimizer.groups.insert(j.job.optimizer.groups.begin(), group);
       }},
      {"schedule.kind", "--schedule", "KIND", "constant, cosine, linear (both with warm-up) or step",
       [](JobText& j, const std::string& v) {
         j.job.optimizer.rate.kind = choice<ScheduleKind>(v, {{"constant", ScheduleKind::Constant}, {"cosine", ScheduleKind::WarmupCosine},
                                                              {"linear", ScheduleKind::WarmupLinear}, {"step", ScheduleKind::Step}});
       }},
      number("schedule.warmup", "--warmup", "steps of linear rise", [](TrainJob& j) -> int64_t& { return j.optimizer.rate.warmup; }),
      number("schedule.total", "--schedule-total", "cosine, linear: step at which the minimum is reached", [](TrainJob& j) -> int64_t& { return j.optimizer.rate.total; }),
      decimal("schedule.minimum", "--minimum-lr", "lowest rate", [](TrainJob& j) -> double& { return j.optimizer.rate.minimum; }),
      number("schedule.every", "--decay-every", "step: steps between decays", [](TrainJob& j) -> int64_t& { return j.optimizer.rate.every; }),
      decimal("schedule.factor", "--decay-factor", "step: what the rate is multiplied by", [](TrainJob& j) -> double& { return j.optimizer.rate.factor; }),
  };
}

std::vector<JobOption> train_options() {
  return {
      number("train.batch", "--batch", "rows of the global batch", [](TrainJob& j) -> int64_t& { return j.batch; }),
      number("train.epochs", "--epochs", "passes over the training set", [](TrainJob& j) -> int64_t& { return j.epochs; }),
      number("train.steps", "--steps", "at most this many steps", [](TrainJob& j) -> int64_t& { return j.steps; }),
      number("train.micro_batches", "--micro-batches", "gradient accumulation: slices of a batch", [](TrainJob& j) -> int64_t& { return j.step.micro_batches; }),
      {"train.clip_norm", "--clip-norm", "X", "largest global gradient norm", [](JobText& j, const std::string& v) { j.job.step.clip_norm = real(v); }},
      {"train.last_batch", "--last-batch", "drop|short|pad", "what to do with the last batch of an epoch",
       [](JobText& j, const std::string& v) { j.job.last_batch = choice<LastBatch>(v, {{"drop", LastBatch::Drop}, {"short", LastBatch::Short}, {"pad", LastBatch::Pad}}); }},
      yes_no("train.shuffle", "--shuffle", "another order each epoch, by seed", [](TrainJob& j) -> bool& { return j.shuffle; }),
      number("train.prefetch", "--prefetch", "batches prepared ahead; 0: none", [](TrainJob& j) -> int64_t& { return j.prefetch; }),
      {"train.seed", "--seed", "N", "of initial values, dropout and order of data",
       [](JobText& j, const std::string& v) {
         const int64_t seed = integer(v);
         if (seed < 0) throw UserError("found " + v + ", wanted at least 0");
         j.job.seed = static_cast<uint64_t>(seed);
       }},
      string("train.mesh", "--mesh", "AXES", "devices, e.g. data=2: the batch is split over axis data", [](TrainJob& j) -> std::string& { return j.mesh; }),
      number("train.eval_every", "--eval-every", "steps between evaluations; 0: each epoch, -1: never", [](TrainJob& j) -> int64_t& { return j.eval_every; }),
      number("train.eval_batch", "--eval-batch", "rows of an evaluation batch; 0: as batch", [](TrainJob& j) -> int64_t& { return j.eval_batch; }),
      number("train.eval_limit", "--eval-limit", "batches of an evaluation during training; 0: all", [](TrainJob& j) -> int64_t& { return j.eval_limit; }),
      {"train.skip", "--skip", "PASSES", "optional passes to leave out, e.g. simplify,cse", [](JobText& j, const std::string& v) { j.job.skip = split(v, ','); }},
      string("checkpoint.directory", "--checkpoint", "DIR", "where checkpoints are kept", [](TrainJob& j) -> std::string& { return j.checkpoint; }),
      number("checkpoint.save_every", "--save-every", "steps between checkpoints; also one at the end and on SIGINT, SIGTERM", [](TrainJob& j) -> int64_t& { return j.save_every; }),
      {"checkpoint.keep", "--keep", "N", "newest checkpoints that stay", [](JobText& j, const std::string& v) {
         const int64_t keep = integer(v);
         if (keep < 1 || keep > 1000000) throw UserError("found " + v + ", wanted at least 1");
         j.job.keep = static_cast<int>(keep);
       }},
      yes_no("checkpoint.resume", "--resume", "go on from the latest good checkpoint", [](TrainJob& j) -> bool& { return j.resume; }),
      {"output.curve", "--curve", "FILE", "loss curve as SVG (default: beside the checkpoints)", [](JobText& j, const std::string& v) { j.curve = v; }},
  };
}

std::string toml_text(const toml::node& node) {
  if (const auto value = node.as_string()) return value->get();
  if (const auto value = node.as_integer()) return std::to_string(value->get());
  if (const auto value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto value = node.as_floating_point()) {
    char buffer[40];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value->get()).ptr;
    return {buffer, end};
  }
  if (const auto array = node.as_array()) {
    std::string joined;
    for (const toml::node& element : *array) joined += (joined.empty() ? "" : ",") + toml_text(element);
    return joined;
  }
  throw UserError("found a table or date, wanted a number, a text, true, false or a list of them");
}

class JobFile {
 public:
  JobFile(std::string path, JobText& job) : path_(std::move(path)), job_(job) {}

  void read(const toml::table& root) {
    for (const auto& [section, node] : root) {
      const std::string section_name(section.str());
      const toml::table* table = node.as_table();
      if (!table) throw error(node, "'" + section_name + "' stands outside a section; write it under [model], [data], [optimizer], [schedule], [train], [checkpoint] or [output]");
      read_section(section_name, *table, node);
    }
  }

 private:
  UserError error(const toml::node& node, const std::string& message) const {
    return UserError(path_ + ":" + std::to_string(node.source().begin.line) + ": " + message);
  }

  void read_section(const std::string& section, const toml::table& table, const toml::node& section_node) {
    const std::vector<std::string> sections = {"model", "data", "optimizer", "schedule", "train", "checkpoint", "output"};
    if (std::find(sections.begin(), sections.end(), section) == sections.end())
      throw error(section_node, "unknown section [" + section + "]; the nearest is [" + nearest_names(section, sections, 1) + "]");
    for (const auto& [key, node] : table) {
      const std::string full = section + "." + std::string(key.str());
      try {
        read_key(section, std::string(key.str()), full, node);
      } catch (const UserError& problem) {
        throw error(node, full + ": " + problem.what());
      }
    }
  }

  void read_key(const std::string& section, const std::string& key, const std::string& full, const toml::node& node) {
    if (section == "model") {
      if (key == "name")
        job_.job.model.name = toml_text(node);
      else
        job_.job.model.options[key] = toml_text(node);
      return;
    }
    if (full == "optimizer.groups") return read_groups(node);
    std::vector<std::string> known{"optimizer.groups"};
    for (const JobOption& option : job_options()) {
      if (option.key == full) return option.set(job_, toml_text(node));
      if (option.key.starts_with(section + ".")) known.push_back(option.key);
    }
    throw UserError("unknown key; the nearest is " + nearest_names(full, known, 1));
  }

  void read_groups(const toml::node& node) {
    const toml::array* array = node.as_array();
    if (!array) throw UserError("wanted [[optimizer.groups]] tables");
    for (const toml::node& element : *array) {
      const toml::table* table = element.as_table();
      if (!table) throw UserError("wanted [[optimizer.groups]] tables");
      std::string description;
      for (const auto& [key, value] : *table) description += std::string(key.str()) + "=" + toml_text(value) + ";";
      add_group(job_, description);
    }
  }

  std::string path_;
  JobText& job_;
};

}  // namespace

const std::vector<JobOption>& job_options() {
  static const std::vector<JobOption> options = [] {
    std::vector<JobOption> all = data_options();
    for (auto part : {optimizer_options(), train_options()}) all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return options;
}

void read_job_file(const std::string& path, JobText& job) {
  const std::string content = read_file(path, int64_t{1} << 20);
  toml::table root;
  try {
    root = toml::parse(content, path);
  } catch (const toml::parse_error& problem) {
    throw UserError(path + ":" + std::to_string(problem.source().begin.line) + ":" + std::to_string(problem.source().begin.column) + ": " +
                    std::string(problem.description()));
  }
  JobFile(path, job).read(root);
}

void add_model_option(JobText& job, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) throw UserError("model option: found '" + assignment + "', wanted NAME=VALUE");
  job.job.model.options[assignment.substr(0, equals)] = assignment.substr(equals + 1);
}

void add_group(JobText& job, const std::string& description) {
  ParameterGroup group;
  for (const std::string& part : split(description, ';')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) throw UserError("parameter group: found '" + part + "', wanted KEY=VALUE");
    const std::string key = part.substr(0, equals), value = part.substr(equals + 1);
    if (key == "patterns")
      group.patterns = split(value, ',');
    else if (key == "rate_factor")
      group.rate_factor = real(value);
    else if (key == "weight_decay")
      group.weight_decay = real(value);
    else if (key == "frozen")
      group.frozen = truth(value);
    else
      throw UserError("parameter group: unknown key '" + key + "'; the nearest is " + nearest_names(key, std::vector<std::string>{"patterns", "rate_factor", "weight_decay", "frozen"}, 1));
  }
  if (group.patterns.empty()) throw UserError("parameter group: no patterns are given");
  job.job.optimizer.groups.push_back(group);
}

}  // namespace stepgraph
