// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/normalization.h"

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/composite/precision.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

/// Inputs of a composite with optional operands, and where these went.
struct Packed {
  std::vector<Value> values;
  int weight = -1, bias = -1;
};
Packed operands(const Value& x, const std::optional<Value>& weight, const std::optional<Value>& bias) {
  Packed result{{x}};
  if (weight) result.weight = static_cast<int>(result.values.size()), result.values.push_back(*weight);
  if (bias) result.bias = static_cast<int>(result.values.size()), result.values.push_back(*bias);
  return result;
}

void check_floating(const char* function, const Value& x) {
  if (!is_floating(x.dtype())) fail(*x.builder, fmt::format("{}: found {}, wanted a floating dtype", function, text(x.type())));
}

void check_shape(const char* function, const char* what, const std::optional<Value>& value, const Shape& shape) {
  if (!value) return;
  bool fits = value->shape().size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = value->builder->module().symbols.equal(value->shape()[i], shape[i]) == Truth::True;
  if (!fits) fail(*value->builder, fmt::format("{}: found {} {}, wanted {}", function, what, text(value->type()), text(shape)));
}

Value of_channels(const Value& channels, const Shape& shape) { return broadcast_in_dim(channels, shape, {1}); }

/// (x - mean) * (weight / sqrt(variance + epsilon)) + bias, all of [C] but x.
Value normalized(const Value& x, const Value& mean, const Value& variance, const std::optional<Value>& weight, const std::optional<Value>& bias,
                 double epsilon) {
  Value factor = rsqrt(variance + epsilon);
  if (weight) factor = factor * widened(*weight);
  const Value result = (x - of_channels(mean, x.shape())) * of_channels(factor, x.shape());
  return bias ? result + of_channels(widened(*bias), x.shape()) : result;
}

Dims all_but_channel(const Value& x) {
  Dims dims{0};
  for (int64_t d = 2; d < x.rank(); ++d) dims.push_back(d);
  return dims;
}

void check_batch_norm(const Value& x, const std::optional<Value>& weight, const std::optional<Value>& bias) {
  check_floating("batch_norm", x);
  if (x.rank() < 2) fail(*x.builder, fmt::format("batch_norm: found {}, wanted [batch, channels, ...]", text(x.type())));
  check_shape("batch_norm", "weight", weight, {x.dim(1)});
  check_shape("batch_norm", "bias", bias, {x.dim(1)});
}

constexpr std::string_view batch_norm_tag = "batch_norm", batch_norm_forward_tag = "batch_norm.forward";

}  // namespace

Dim values_per_channel(const Shape& x) {
  Dim count = 1;
  for (size_t d = 0; d < x.size(); ++d)
    if (d != 1) count = count * x[d];
  return count;
}

bool is_batch_norm_training(const Graph& graph) { return graph.composite == batch_norm_tag || graph.composite == batch_norm_forward_tag; }

Value layer_norm(At x, int64_t normalized_rank, std::optional<Value> weight, std::optional<Value> bias, double epsilon) {
  const PlaceScope place(x);
  check_floating("layer_norm", x.value);
  x.value = autocast("layer_norm", x.value);
  if (weight) weight = autocast("layer_norm", *weight);
  if (bias) bias = autocast("layer_norm", *bias);
  if (normalized_rank < 1 || normalized_rank > x->rank())
    fail(*x.value.builder, fmt::format("layer_norm: normalized rank {} is out of range for {}", normalized_rank, text(x->type())));
  const Shape shape(x->shape().end() - normalized_rank, x->shape().end());
  check_shape("layer_norm", "weight", weight, shape);
  check_shape("layer_norm", "bias", bias, shape);
  const Packed in = operands(x.value, weight, bias);
  const auto body = [&](Builder&, const std::vector<Value>& values) -> std::vector<Value> {
    Dims dims;
    for (int64_t d = values[0].rank() - normalized_rank; d < values[0].rank(); ++d) dims.push_back(d);
    const Value wide = widened(values[0]);
    const MeanVariance statistics = moments(wide, dims, true);
    Value result = (wide - statistics.mean) * rsqrt(statistics.variance + epsilon);
    if (in.weight > 0) result = result * widened(values[static_cast<size_t>(in.weight)]);
    if (in.bias > 0) result = result + widened(values[static_cast<size_t>(in.bias)]);
    return {narrowed(result, values[0].dtype())};
  };
  return composite(*x.value.builder, "layer_norm", in.values, body)[0];
}

Value rms_norm(At x, int64_t normalized_rank, std::optional<Value> weight, std::optional<double> epsilon) {
  const PlaceScope place(x);
  check_floating("rms_norm", x.value);
  if (normalized_rank < 1 || normalized_rank > x->rank())
    fail(*x.value.builder, fmt::format("rms_norm: normalized rank {} is out of range for {}", normalized_rank, text(x->type())));
  check_shape("rms_norm", "weight", weight, Shape(x->shape().end() - normalized_rank, x->shape().end()));
  const double small = epsilon ? *epsilon : spacing_at_one(wide_dtype(x->dtype()));  // of what it is computed in
  const Packed in = operands(x.value, weight, std::nullopt);
  const auto body = [&](Builder&, const std::vector<Value>& values) -> std::vector<Value> {
    Dims dims;
    for (int64_t d = values[0].rank() - normalized_rank; d < values[0].rank(); ++d) dims.push_back(d);
    const Value wide = widened(values[0]);
    Value result = wide * rsqrt(mean(wide * wide, dims, true) + small);
    if (in.weight > 0) result = result * widened(values[static_cast<size_t>(in.weight)]);
    return {narrowed(result, values[0].dtype())};
  };
  return composite(*x.value.builder, "rms_norm", in.values, body)[0];
}

GroupNorm group_norm(At x, int64_t groups, std::optional<Value> weight, std::optional<Value> bias, double epsilon) {
  const PlaceScope place(x);
  check_floating("group_norm", x.value);
  x.value = autocast("group_norm", x.value);
  if (weight) weight = autocast("group_norm", *weight);
  if (bias) bias = autocast("group_norm", *bias);
  if (x->rank() < 2) fail(*x.value.builder, fmt::format("group_norm: found {}, wanted [batch, channels, ...]", text(x->type())));
  const std::optional<Dim> members = groups < 1 ? std::nullopt : exact_quotient(x->dim(1), Dim(groups));
  if (!members) fail(*x.value.builder, fmt::format("group_norm: the channels of {} are no multiple of {} groups", text(x->type()), groups));
  check_shape("group_norm", "weight", weight, {x->dim(1)});
  check_shape("group_norm", "bias", bias, {x->dim(1)});
  const Packed in = operands(x.value, weight, bias);
  const auto body = [&](Builder&, const std::vector<Value>& values) -> std::vector<Value> {
    const Shape& shape = values[0].shape();
    Shape apart{shape[0], Dim(groups), *members};
    Dims dims{2};
    for (size_t d = 2; d < shape.size(); ++d) apart.push_back(shape[d]), dims.push_back(static_cast<int64_t>(d) + 1);
    const Value parts = reshape(widened(values[0]), apart);
    const MeanVariance statistics = moments(parts, dims, true);
    const Value scale = rsqrt(statistics.variance + epsilon);
    Value result = reshape((parts - statistics.mean) * scale, shape);
    if (in.weight > 0) result = result * of_channels(widened(values[static_cast<size_t>(in.weight)]), shape);
    if (in.bias > 0) result = result + of_channels(widened(values[static_cast<size_t>(in.bias)]), shape);
    const Shape statistic{shape[0], Dim(groups)};
    return {narrowed(result, values[0].dtype()), reshape(statistics.mean, statistic), reshape(scale, statistic)};
  };
  const std::vector<Value> results = composite(*x.value.builder, "group_norm", in.values, body);
  return {results[0], results[1], results[2]};
}

Value instance_norm(At x, std::optional<Value> weight, std::optional<Value> bias, double epsilon) {
  const PlaceScope place(x);
  if (x->rank() < 2 || !x->dim(1).is_constant() || x->dim(1).constant() < 1)
    fail(*x.value.builder, fmt::format("instance_norm: found {}, wanted [batch, channels, ...] with a constant number of channels", text(x->type())));
  return group_norm(x.value, x->dim(1).constant(), weight, bias, epsilon).result;
}

BatchNorm batch_norm_training(At x, std::optional<Value> weight, std::optional<Value> bias, double epsilon) {
  const PlaceScope place(x);
  check_batch_norm(x.value, weight, bias);
  if (values_per_channel(x->shape()) == Dim(1))
    fail(*x.value.builder, fmt::format("batch_norm{}: {} has one value per channel, which has no variance to train with; wanted at least 2: give it more rows",
                                       x.value.builder->scope().empty() ? "" : " " + x.value.builder->scope(), text(x->type())));
  const Packed in = operands(x.value, weight, bias);
  const auto body = [&](Builder&, const std::vector<Value>& values) -> std::vector<Value> {
    const Value wide = widened(values[0]);
    const MeanVariance statistics = moments(wide, all_but_channel(wide));
    const auto pick = [&](int index) { return index < 0 ? std::nullopt : std::optional<Value>(values[static_cast<size_t>(index)]); };
    const Value result = normalized(wide, statistics.mean, statistics.variance, pick(in.weight), pick(in.bias), epsilon);
    return {narrowed(result, values[0].dtype()), statistics.mean, statistics.variance};
  };
  const std::vector<Value> results = composite(*x.value.builder, std::string(batch_norm_tag), in.values, body);
  return {results[0], results[1], results[2]};
}

Value batch_norm_evaluation(At x, Value mean, Value variance, std::optional<Value> weight, std::optional<Value> bias, double epsilon) {
  const PlaceScope place(x);
  check_batch_norm(x.value, weight, bias);
  check_shape("batch_norm", "running mean", mean, {x->dim(1)});
  check_shape("batch_norm", "running variance", variance, {x->dim(1)});
  Packed in = operands(x.value, weight, bias);
  const size_t first = in.values.size();
  in.values.push_back(mean);
  in.values.push_back(variance);
  const auto body = [&](Builder&, const std::vector<Value>& values) -> std::vector<Value> {
    const auto pick = [&](int index) { return index < 0 ? std::nullopt : std::optional<Value>(values[static_cast<size_t>(index)]); };
    const Value result = normalized(widened(values[0]), widened(values[first]), widened(values[first + 1]), pick(in.weight), pick(in.bias), epsilon);
    return {narrowed(result, values[0].dtype())};
  };
  return composite(*x.value.builder, "batch_norm_evaluation", in.values, body)[0];
}

RunningStatistics update_running(RunningStatistics running, const BatchNorm& batch, const Shape& x, double momentum) {
  Builder& builder = *batch.mean.builder;
  // A channel with one value has no unbiased variance; it counts as 0 instead of dividing by zero.
  const Value count = size_value(builder, DType::F64, values_per_channel(x));
  const Value unbias = convert(count / maximum(count - 1.0, ones_like(count)), batch.variance.dtype());
  const auto blend = [&](const Value& old, const Value& fresh) { return old * (1 - momentum) + convert(stop_gradient(fresh), old.dtype()) * momentum; };
  return {blend(running.mean, batch.mean), blend(running.variance, batch.variance * unbias)};
}

}  // namespace stepgraph
