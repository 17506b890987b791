// SPDX-License-Identifier: Apache-2.0
// Options that change nothing: a user who gives one believes that it does.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "tools/job_options.h"

namespace stepgraph {
namespace {

using Kind = Optimizer::Kind;
using Curve = Schedule::Kind;

/// "sgd, adam or lion"
std::string alternatives(const std::vector<std::string>& words) {
  std::string all;
  for (size_t i = 0; i < words.size(); ++i) all += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return all;
}

std::string for_optimizers(const TrainJob& job, const std::vector<Kind>& kinds) {
  if (std::find(kinds.begin(), kinds.end(), job.optimizer.kind) != kinds.end()) return "";
  std::vector<std::string> names;
  for (const Kind kind : kinds) names.emplace_back(name(kind));
  return fmt::format("has no use with optimizer {}, wanted {}", name(job.optimizer.kind), alternatives(names));
}

std::string_view name(Curve kind) {
  switch (kind) {
    case Curve::Constant: return "constant";
    case Curve::WarmupCosine: return "cosine";
    case Curve::WarmupLinear: return "linear";
    case Curve::Step: return "step";
  }
  throw InternalError("unknown schedule");
}
std::string for_schedules(const TrainJob& job, const std::vector<Curve>& kinds) {
  if (std::find(kinds.begin(), kinds.end(), job.optimizer.rate.kind) != kinds.end()) return "";
  std::vector<std::string> names;
  for (const Curve kind : kinds) names.emplace_back(name(kind));
  return fmt::format("has no use with the schedule {}, wanted {}", name(job.optimizer.rate.kind), alternatives(names));
}

/// A kind that is not told yet, or wrong, is another message's affair.
std::string for_data(const TrainJob& job, const std::vector<std::string>& kinds) {
  if (job.data.kind.empty() && job.data.path.empty()) return "";
  std::string kind;
  try {
    kind = data_kind(job.data);
  } catch (const UserError&) {
    return "";
  }
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return "";
  return fmt::format("has no use with data of kind {}, wanted {}", kind, alternatives(kinds));
}

std::string unless(bool used, const std::string& objection) { return used ? "" : "has no use " + objection; }

struct Use {
  std::vector<std::string> keys;
  std::function<std::string(const TrainJob&)> objection;
};

const std::vector<Use>& uses() {
  using J = TrainJob;
  static const std::vector<Use> rows = {
      {{"optimizer.momentum"}, [](const J& j) { return for_optimizers(j, {Kind::Sgd, Kind::Rmsprop}); }},
      {{"optimizer.dampening"}, [](const J& j) { return for_optimizers(j, {Kind::Sgd}); }},
      {{"optimizer.dampening"}, [](const J& j) { return unless(j.optimizer.momentum != 0, "without a momentum"); }},
      {{"optimizer.nesterov"}, [](const J& j) { return for_optimizers(j, {Kind::Sgd}); }},
      {{"optimizer.beta1"}, [](const J& j) { return for_optimizers(j, {Kind::Adam, Kind::AdamW, Kind::Lion}); }},
      {{"optimizer.beta2"}, [](const J& j) { return for_optimizers(j, {Kind::Adam, Kind::AdamW}); }},
      {{"optimizer.epsilon"}, [](const J& j) { return for_optimizers(j, {Kind::Adam, Kind::AdamW, Kind::Rmsprop, Kind::Adagrad}); }},
      {{"optimizer.alpha"}, [](const J& j) { return for_optimizers(j, {Kind::Rmsprop, Kind::Lion}); }},
      {{"optimizer.centered"}, [](const J& j) { return for_optimizers(j, {Kind::Rmsprop}); }},
      {{"optimizer.rate_decay"}, [](const J& j) { return for_optimizers(j, {Kind::Adagrad}); }},
      {{"optimizer.beta2_decay", "optimizer.clip_threshold", "optimizer.minimum_scale"}, [](const J& j) { return for_optimizers(j, {Kind::Adafactor}); }},
      {{"schedule.warmup", "schedule.total", "schedule.minimum"}, [](const J& j) { return for_schedules(j, {Curve::WarmupCosine, Curve::WarmupLinear}); }},
      {{"schedule.every", "schedule.factor"}, [](const J& j) { return for_schedules(j, {Curve::Step}); }},
      {{"data.test_path"}, [](const J& j) { return for_data(j, {"npz", "safetensors", "images"}); }},
      {{"data.context", "data.stride", "data.vocabulary"}, [](const J& j) { return for_data(j, {"text", "tokens_u16", "tokens_u32"}); }},
      {{"data.held_out"}, [](const J& j) { return for_data(j, {"text", "tokens_u16", "tokens_u32", "npz", "safetensors"}); }},
      {{"data.held_out", "data.test_every", "data.test_rest"}, [](const J& j) { return unless(j.data.test_path.empty(), "beside a test set of its own"); }},
      {{"data.sample", "data.scale"}, [](const J& j) { return for_data(j, {"csv"}); }},
      {{"data.input", "data.label", "data.test_every", "data.test_rest"}, [](const J& j) { return for_data(j, {"csv", "images"}); }},
      {{"data.crop", "data.resize", "data.mean", "data.std", "data.flip"}, [](const J& j) { return for_data(j, {"images"}); }},
      {{"train.autocast"}, [](const J& j) { return unless(j.autocast.dtype.has_value(), "without a precision of bf16 or f16"); }},
      {{"train.loss_scale_interval"},
       [](const J& j) {
         const LossScale::Kind kind = j.step.loss_scale.kind;
         return unless(kind == LossScale::Kind::Dynamic || (kind == LossScale::Kind::Automatic && j.autocast.dtype == DType::F16),
                       "without a dynamic loss scale");
       }},
      {{"train.tune", "train.tuning"},
       [](const J& j) { return unless(j.backend != Backend::Reference, "beside a reference back end, which calls no library"); }},
      {{"train.memory_budget"}, [](const J& j) { return unless(j.backend != Backend::Reference, "with the reference back end, which plans nothing"); }},
      {{"checkpoint.other_data"}, [](const J& j) { return unless(j.resume, "without --resume"); }},
      {{"output.tap"}, [](const J& j) { return unless(!j.tap_file.empty(), "without a file for the values (--tap-out)"); }},
      {{"output.tap_file"}, [](const J& j) { return unless(!j.taps.empty(), "without a pattern of values (--tap)"); }},
      {{"checkpoint.keep"}, [](const J& j) { return unless(!j.checkpoint.empty(), "without a checkpoint directory"); }},
  };
  return rows;
}

}  // namespace

std::string objection_to(const std::string& key, const TrainJob& job, bool trains) {
  if (trains && (key == "train.eval_batch" || key == "train.eval_limit")) return unless(job.eval_every >= 0, "without evaluations");
  if (!trains && (key.starts_with("checkpoint.") || key.starts_with("output."))) return "";
  for (const Use& use : uses())
    if (std::find(use.keys.begin(), use.keys.end(), key) != use.keys.end())
      if (std::string objection = use.objection(job); !objection.empty()) return objection;
  return "";
}

void check_use(const JobText& job, bool trains) {
  for (const GivenOption& given : job.given) {
    const std::string objection = objection_to(given.key, job.job, trains);
    if (!objection.empty() && (!given.in_file || !given.objection.empty())) throw UserError(given.place + ": " + objection);
  }
}

}  // namespace stepgraph
