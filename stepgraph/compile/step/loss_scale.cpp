// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/loss_scale.h"

#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/step/map_gradients.h"

namespace stepgraph {
namespace {

constexpr const char* scale_name = "optimizer.loss_scale";
constexpr const char* good_name = "optimizer.good_steps";

}  // namespace

void check(const LossScale& scale) {
  const auto wanted = [](bool good, const char* what, double found, const char* range) {
    if (!good) throw UserError(fmt::format("loss scale: {} is {}, wanted {}", what, found, range));
  };
  wanted(scale.start > 0 && scale.start <= 0x1p126 && static_cast<float>(scale.start) >= 0x1p-126F, "the scale", scale.start, "a number from 2^-126 to 2^126");
  wanted(scale.growth >= 1 && std::isfinite(scale.growth), "growth", scale.growth, "a number of at least 1");
  wanted(scale.backoff > 0 && scale.backoff < 1, "backoff", scale.backoff, "a number between 0 and 1");
  wanted(scale.interval >= 1, "interval", static_cast<double>(scale.interval), "at least 1");
}

LossScaler::LossScaler(Builder& builder, const LossScale& options) : builder_(builder), options_(options) {
  SG_CHECK(options.kind == LossScale::Kind::Constant || options.kind == LossScale::Kind::Dynamic);
  applied_ = builder.input({DType::I64, {}, {}}, {RoleKind::OptimizerState, std::string(applied_steps_name)});
  if (options.kind == LossScale::Kind::Constant) {
    scale_ = scalar(builder, DType::F32, options.start);
    return;
  }
  scale_ = builder.input({DType::F32, {}, {}}, {RoleKind::OptimizerState, scale_name});
  good_ = builder.input({DType::I64, {}, {}}, {RoleKind::OptimizerState, good_name});
}

void LossScaler::unscale(std::vector<OptimizedParameter>& parameters) {
  const MapGradients unscaling{"unscale", {reciprocal(scale_)}, true, 1, ReduceKind::All};
  const auto found = map_gradients(parameters, unscaling, [](const Value& gradient, const std::vector<Value>& shared) -> std::vector<Value> {
    return {gradient * convert(shared[0], gradient.dtype()), is_finite(gradient)};
  });
  Value finite = constant(builder_, Literal::integer(DType::Bool, 1));
  for (const std::vector<Value>& all_finite : found) finite = logical_and(finite, all_finite[0]);
  finite_ = finite;
}

std::vector<StateUpdate> LossScaler::own_state() const {
  std::vector<StateUpdate> updates = {{std::string(applied_steps_name), applied_ + convert(*finite_, DType::I64), false}};
  if (!good_) return updates;
  const Value good = where(*finite_, *good_ + 1.0, zeros_like(*good_));
  const Value grows = equal(good, static_cast<double>(options_.interval));
  const Value larger = scale_ * options_.growth;
  const Value kept = where(logical_and(grows, is_finite(larger)), larger, scale_);
  updates.push_back({scale_name, where(*finite_, kept, scale_ * options_.backoff), false});
  updates.push_back({good_name, where(grows, zeros_like(good), good), false});
  return updates;
}

std::optional<Value> applied_steps(Builder& builder) {
  const auto input = find_input(builder.graph(), RoleKind::OptimizerState, applied_steps_name);
  return input ? std::optional(builder.value(*input)) : std::nullopt;
}

void keep_if_skipped(Builder& builder, Value skipped, std::vector<StateUpdate>& updates) {
  const Value counts = equal(skipped, 0);
  std::map<std::string, ValueId, std::less<>> old;
  for (const GraphInput& input : builder.graph().inputs)
    if (is_state(input.role.kind)) old.emplace(input.role.name, input.value);
  for (StateUpdate& update : updates) {
    const auto found = old.find(update.name);
    SG_CHECK(found != old.end(), "no old value of " + update.name);
    update.value = where(counts, update.value, builder.value(found->second));
  }
}

std::map<std::string, double> starts(const LossScale& options) { return {{scale_name, options.start}}; }

}  // namespace stepgraph
