// SPDX-License-Identifier: Apache-2.0
// Learning rates twice: as values of the step's graph, and as numbers.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/step/optimizer.h"

namespace stepgraph {

Schedule warmup_cosine(double rate, int64_t warmup, int64_t total, double minimum) {
  Schedule schedule(rate);
  schedule.kind = Schedule::Kind::WarmupCosine;
  schedule.warmup = warmup;
  schedule.total = total;
  schedule.minimum = minimum;
  return schedule;
}

Schedule warmup_linear(double rate, int64_t warmup, int64_t total, double minimum) {
  Schedule schedule = warmup_cosine(rate, warmup, total, minimum);
  schedule.kind = Schedule::Kind::WarmupLinear;
  return schedule;
}

Schedule step_decay(double rate, int64_t every, double factor) {
  Schedule schedule(rate);
  schedule.kind = Schedule::Kind::Step;
  schedule.every = every;
  schedule.factor = factor;
  return schedule;
}

void check(const Schedule& schedule) {
  const auto not_negative = [](const char* what, double value) {
    if (!(value >= 0) || !std::isfinite(value)) throw UserError(fmt::format("schedule: {} is {}, wanted a number of at least 0", what, value));
  };
  not_negative("rate", schedule.rate);
  switch (schedule.kind) {
    case Schedule::Kind::Constant: break;
    case Schedule::Kind::WarmupCosine:
    case Schedule::Kind::WarmupLinear:
      not_negative("minimum", schedule.minimum);
      if (schedule.minimum > schedule.rate)
        throw UserError(fmt::format("schedule: minimum {} is above rate {}", schedule.minimum, schedule.rate));
      if (schedule.warmup < 0) throw UserError(fmt::format("schedule: warmup is {}, wanted at least 0 steps", schedule.warmup));
      if (schedule.total <= schedule.warmup)
        throw UserError(fmt::format("schedule: total is {}, wanted more steps than the {} of warmup", schedule.total, schedule.warmup));
      break;
    case Schedule::Kind::Step:
      if (schedule.every < 1) throw UserError(fmt::format("schedule: every is {}, wanted at least 1 step", schedule.every));
      not_negative("factor", schedule.factor);
      break;
  }
}

namespace {

/// 0 at the end of the warm-up, 1 from `total` on.
Value progress(const Schedule& schedule, Value step) {
  const auto span = static_cast<double>(schedule.total - schedule.warmup);
  return clamp((step - static_cast<double>(schedule.warmup)) / span, 0.0, 1.0);
}

/// `decayed` after the warm-up, the linear rise before.
Value after_warmup(const Schedule& schedule, Value step, Value decayed) {
  if (schedule.warmup == 0) return decayed;
  const Value rise = (step + 1.0) * schedule.rate / static_cast<double>(schedule.warmup);
  return where(less(step, static_cast<double>(schedule.warmup)), rise, decayed);
}

}  // namespace

Value learning_rate_f64(const Schedule& schedule, Value step) {
  check(schedule);
  const Value at = convert(step, DType::F64);
  const double range = schedule.rate - schedule.minimum;
  switch (schedule.kind) {
    case Schedule::Kind::Constant: return scalar(*step.builder, DType::F64, schedule.rate);
    case Schedule::Kind::WarmupCosine:
      return after_warmup(schedule, at, (cos(progress(schedule, at) * std::numbers::pi) + 1.0) * (0.5 * range) + schedule.minimum);
    case Schedule::Kind::WarmupLinear: return after_warmup(schedule, at, (1.0 - progress(schedule, at)) * range + schedule.minimum);
    case Schedule::Kind::Step:
      return pow(scalar(*step.builder, DType::F64, schedule.factor), floor(at / static_cast<double>(schedule.every))) * schedule.rate;
  }
  throw InternalError("schedule: unknown kind");
}

Value learning_rate(const Schedule& schedule, Value step) { return convert(learning_rate_f64(schedule, step), DType::F32); }

double learning_rate_at(const Schedule& schedule, int64_t step) {
  check(schedule);
  const auto at = static_cast<double>(step), warmup = static_cast<double>(schedule.warmup);
  const double range = schedule.rate - schedule.minimum;
  const auto part = [&] { return std::clamp((at - warmup) / static_cast<double>(schedule.total - schedule.warmup), 0.0, 1.0); };
  switch (schedule.kind) {
    case Schedule::Kind::Constant: return schedule.rate;
    case Schedule::Kind::WarmupCosine:
      if (step < schedule.warmup) return (at + 1) * schedule.rate / warmup;
      return (std::cos(part() * std::numbers::pi) + 1) * (0.5 * range) + schedule.minimum;
    case Schedule::Kind::WarmupLinear:
      if (step < schedule.warmup) return (at + 1) * schedule.rate / warmup;
      return (1 - part()) * range + schedule.minimum;
    case Schedule::Kind::Step: return std::pow(schedule.factor, std::floor(at / static_cast<double>(schedule.every))) * schedule.rate;
  }
  throw InternalError("schedule: unknown kind");
}

}  // namespace stepgraph
