// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/module_options.h"

#include <fmt/core.h>

#include <set>
#include <string_view>
#include <vector>

#include "stepgraph/base/printable.h"
#include "stepgraph/train/models/models.h"

namespace stepgraph {
namespace {

std::string_view name(Schedule::Kind kind) {
  switch (kind) {
    case Schedule::Kind::Constant: return "constant";
    case Schedule::Kind::WarmupCosine: return "cosine";
    case Schedule::Kind::WarmupLinear: return "linear";
    case Schedule::Kind::Step: return "step";
  }
  throw InternalError("unknown schedule");
}
std::string text(const LossScale& scale) {
  switch (scale.kind) {
    case LossScale::Kind::Automatic: return "automatic";
    case LossScale::Kind::None: return "none";
    case LossScale::Kind::Constant: return fmt::format("{}", scale.start);
    case LossScale::Kind::Dynamic: return fmt::format("dynamic:{}", scale.start);
  }
  throw InternalError("unknown loss scale");
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ",") + word;
  return all;
}
std::string text(const std::vector<ParameterGroup>& groups) {
  std::string all;
  for (const ParameterGroup& group : groups) {
    all += fmt::format("{}patterns={}; rate_factor={}; frozen={}", all.empty() ? "" : " | ", joined(group.patterns), group.rate_factor, group.frozen);
    if (group.weight_decay) all += fmt::format("; weight_decay={}", *group.weight_decay);
  }
  return all;
}
std::string text(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

void add_optimizer(const Optimizer& optimizer, ModuleOptions& options) {
  options["optimizer.name"] = name(optimizer.kind);
  options["optimizer.lr"] = fmt::format("{}", optimizer.rate.rate);
  const std::pair<const char*, double> numbers[] = {{"weight_decay", optimizer.weight_decay},     {"momentum", optimizer.momentum},
                                                    {"dampening", optimizer.dampening},           {"beta1", optimizer.beta1},
                                                    {"beta2", optimizer.beta2},                   {"epsilon", optimizer.epsilon},
                                                    {"alpha", optimizer.alpha},                   {"rate_decay", optimizer.rate_decay},
                                                    {"beta2_decay", optimizer.beta2_decay},       {"clip_threshold", optimizer.clip_threshold},
                                                    {"minimum_scale", optimizer.minimum_scale}};
  for (const auto& [key, value] : numbers) options[std::string("optimizer.") + key] = fmt::format("{}", value);
  options["optimizer.nesterov"] = optimizer.nesterov ? "true" : "false";
  options["optimizer.centered"] = optimizer.centered ? "true" : "false";
  options["optimizer.ema_decay"] = text(optimizer.ema_decay);
  options["optimizer.no_decay"] = joined(optimizer.no_decay);
  options["optimizer.groups"] = text(optimizer.groups);
  options["schedule.kind"] = name(optimizer.rate.kind);
  options["schedule.warmup"] = std::to_string(optimizer.rate.warmup);
  options["schedule.total"] = std::to_string(optimizer.rate.total);
  options["schedule.minimum"] = fmt::format("{}", optimizer.rate.minimum);
  options["schedule.every"] = std::to_string(optimizer.rate.every);
  options["schedule.factor"] = fmt::format("{}", optimizer.rate.factor);
}

}  // namespace

ModuleOptions module_options(const TrainJob& job) {
  ModuleOptions options;
  options["model.name"] = job.model.name.substr(job.model.name.find_last_of('/') + 1);  // of a file: not where it lies
  for (const ModelInfo& info : models())
    for (const ModelOption& option : info.options)
      if (info.name == job.model.name) options["model." + option.name] = option.default_value;
  for (const auto& [key, value] : job.model.options) options["model." + key] = value;
  add_optimizer(job.optimizer, options);
  options["train.clip_norm"] = text(job.step.clip_norm);
  options["train.micro_batches"] = std::to_string(job.step.micro_batches);
  options["train.precision"] = job.autocast.dtype ? std::string(name(*job.autocast.dtype)) : "f32";
  options["train.autocast"] = job.autocast.list == Autocast::List::Cpu ? "cpu" : "cuda";
  options["train.loss_scale"] = text(job.step.loss_scale);
  options["train.loss_scale_interval"] = std::to_string(job.step.loss_scale.interval);
  for (auto& [key, value] : options) value = printable(value);  // a manifest is UTF-8
  return options;
}

namespace {

constexpr const char *content_key = "data.content", *last_batch_key = "train.last_batch", *shuffle_key = "train.shuffle";

template <class Number>
std::string joined(const std::vector<Number>& numbers) {
  std::string all;
  for (const Number number : numbers) all += fmt::format("{}{}", all.empty() ? "" : ",", number);
  return all;
}

std::string_view name(LastBatch last) {
  switch (last) {
    case LastBatch::Drop: return "drop";
    case LastBatch::Short: return "short";
    case LastBatch::Pad: return "pad";
  }
  throw InternalError("unknown rule for the last batch");
}

}  // namespace

ModuleOptions order_options(const TrainJob& job, const std::string& content) {
  const DataChoice& data = job.data;
  ModuleOptions options;
  options[content_key] = content;
  options[last_batch_key] = name(job.last_batch);
  options[shuffle_key] = job.shuffle ? "true" : "false";
  options["data.kind"] = data_kind(data);
  options["data.test_path"] = data.test_path.empty() ? "" : "given";
  std::string bind;
  for (const auto& [input, field] : data.bind) bind += (bind.empty() ? "" : ",") + input + "=" + field;
  options["data.bind"] = bind;
  options["data.context"] = std::to_string(data.context);
  options["data.stride"] = std::to_string(data.stride);
  options["data.held_out"] = std::to_string(data.held_out);
  options["data.sample"] = joined(data.sample);
  options["data.scale"] = fmt::format("{}", data.scale);
  options["data.input"] = data.input;
  options["data.label"] = data.label;
  options["data.test_every"] = std::to_string(data.test_every);
  options["data.test_rest"] = std::to_string(data.test_rest);
  options["data.crop"] = joined(data.crop);
  options["data.resize"] = joined(data.resize);
  options["data.mean"] = joined(data.mean);
  options["data.std"] = joined(data.deviation);
  options["data.flip"] = data.flip ? "true" : "false";
  for (auto& [key, value] : options) value = printable(value);
  return options;
}

bool same_order(const ModuleOptions& saved, const ModuleOptions& now) {
  const auto same = [&](const char* key) {
    const auto before = saved.find(key), after = now.find(key);
    return before == saved.end() || (after != now.end() && before->second == after->second);
  };
  return same(content_key) && same(last_batch_key) && same(shuffle_key);
}

std::string differences(const ModuleOptions& saved, const ModuleOptions& now) {
  const auto shown = [](const ModuleOptions& options, const std::string& key) {
    const auto found = options.find(key);
    return found == options.end() ? std::string("not given") : found->second.empty() ? std::string("none") : found->second;
  };
  std::set<std::string> keys;
  for (const ModuleOptions* options : {&saved, &now})
    for (const auto& [key, value] : *options) keys.insert(key);
  std::string all;
  for (const std::string& key : keys) {
    const std::string before = shown(saved, key), after = shown(now, key);
    if (before != after) all += fmt::format("{}{}: saved {}, now {}", all.empty() ? "" : "; ", key, before, after);
  }
  return all;
}

}  // namespace stepgraph
