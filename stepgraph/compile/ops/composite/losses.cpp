// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/losses.h"

#include <functional>

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/composite/precision.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

/// The class dim, counted from the front, of operands that fit each other.
int64_t check_classes(const char* function, const Value& logits, const Value& targets, int64_t class_dim) {
  if (!is_floating(logits.dtype()) || logits.rank() < 1)
    fail(*logits.builder, fmt::format("{}: found logits {}, wanted a floating tensor with a dim of classes", function, text(logits.type())));
  if (!is_integer(targets.dtype())) fail(*logits.builder, fmt::format("{}: found targets {}, wanted an integer dtype", function, text(targets.type())));
  const int64_t dim = dim_of(function, logits, class_dim);
  Shape wanted = logits.shape();
  wanted.erase(wanted.begin() + dim);
  bool fits = wanted.size() == targets.shape().size();
  for (size_t i = 0; fits && i < wanted.size(); ++i) fits = logits.builder->module().symbols.equal(wanted[i], targets.shape()[i]) == Truth::True;
  if (!fits)
    fail(*logits.builder, fmt::format("{}: logits {} with classes in dim {} want targets of {}, found {}", function, text(logits.type()), dim, text(wanted),
                                      text(targets.type())));
  return dim;
}

/// Which targets count; none when all do.
std::optional<Value> counted(const Value& targets, const std::optional<int64_t>& ignore_index) {
  if (!ignore_index) return std::nullopt;
  return not_equal(targets, constant(*targets.builder, Literal::integer(DType::I64, *ignore_index)));
}

Value count_of(const Value& targets, const std::optional<Value>& valid, DType dtype) {
  return valid ? sum(convert(*valid, dtype)) : size_value(*targets.builder, dtype, element_count(targets.shape()));
}

void check_class_options(const char* function, const Value& logits, int64_t dim, const CrossEntropyOptions& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    fail(*logits.builder, fmt::format("{}: label smoothing is {}, wanted a number from 0 to 1", function, options.label_smoothing));
  if (!options.weight) return;
  const Value& weight = *options.weight;
  if (weight.rank() != 1 || !is_floating(weight.dtype()) || logits.builder->module().symbols.equal(weight.dim(0), logits.dim(dim)) != Truth::True)
    fail(*logits.builder, fmt::format("{}: found class weights {}, wanted one floating number for each class in dim {} of {}", function, text(weight.type()),
                                      dim, text(logits.type())));
}

/// Log-probability of each target, times its weight: the negative of its loss.
ClassLosses class_scores(const Value& logs, const Value& labels, int64_t dim, const CrossEntropyOptions& options) {
  ClassLosses found;
  found.counts = counted(labels, options.ignore_index);
  const auto valid = [&](const Value& x) { return found.counts ? where(*found.counts, x, zeros_like(x)) : x; };
  // Ignored targets may hold anything, so they must not reach the gather.
  const Value safe = valid(labels);
  Value scores = squeeze(gather(logs, dim, unsqueeze(safe, dim)), {dim});
  std::optional<Value> weight;
  if (options.weight) {
    weight = convert(*options.weight, logs.dtype());
    found.weights = valid(index_select(*weight, 0, safe));
    scores = scores * *found.weights;
  }
  found.losses = valid(scores);
  if (options.label_smoothing > 0) {
    const Value all = sum(weight ? logs * broadcast_in_dim(*weight, logs.shape(), {dim}) : logs, {dim});
    const Value spread = valid(all) / size_value(*logs.builder, logs.dtype(), logs.dim(dim));
    found.losses = found.losses * (1 - options.label_smoothing) + spread * options.label_smoothing;
  }
  return found;
}

/// Sums of class_scores of logits or log-probabilities, as a composite.
LossSum class_sum(const char* tag, const Value& given, const Value& targets, const CrossEntropyOptions& options, bool logits) {
  const Value x = autocast(logits ? "cross_entropy_loss" : "nll_loss", given);
  const int64_t dim = check_classes(tag, x, targets, options.class_dim);
  check_class_options(tag, x, dim, options);
  const auto body = [&](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value wide = widened(in[0]);
    const Value labels = convert(in[1], DType::I64);
    CrossEntropyOptions inner = options;
    if (options.weight) inner.weight = in[2];
    const ClassLosses scores = class_scores(logits ? log_softmax(wide, dim) : wide, labels, dim, inner);
    const DType dtype = wide_dtype(wide.dtype());
    return {-sum(scores.losses), scores.weights ? sum(convert(*scores.weights, dtype)) : count_of(labels, scores.counts, dtype)};
  };
  std::vector<Value> inputs{x, targets};
  if (options.weight) inputs.push_back(*options.weight);
  const std::vector<Value> results = composite(*x.builder, tag, inputs, body);
  return {results[0], results[1]};
}

/// The sum of element-wise losses and what it is divided by, as a composite.
LossSum element_sum(const char* tag, const char* operator_name, std::vector<Value> inputs, const std::function<Value(const std::vector<Value>&)>& losses, bool by_rows = false) {
  Builder& builder = *inputs[0].builder;
  for (Value& input : inputs) input = autocast(operator_name, input);
  const auto body = [&](Builder& inner, const std::vector<Value>& in) -> std::vector<Value> {
    std::vector<Value> wide;
    for (const Value& x : in) wide.push_back(widened(x));
    const Value found = losses(wide);
    if (!is_floating(found.dtype())) fail(inner, fmt::format("{}: found {}, wanted a floating dtype", tag, text(in[0].type())));
    if (by_rows && found.rank() == 0) fail(inner, fmt::format("{}: found {}, wanted a dim of rows", tag, text(in[0].type())));
    return {sum(found), size_value(inner, found.dtype(), by_rows ? found.dim(0) : element_count(found.shape()))};
  };
  const std::vector<Value> results = composite(builder, tag, inputs, body);
  return {results[0], results[1]};
}

}  // namespace

ClassLosses class_losses(At log_probabilities, Value targets, const CrossEntropyOptions& options) {
  const PlaceScope place(log_probabilities);
  log_probabilities.value = autocast("nll_loss", log_probabilities.value);
  const AutocastScope off(*log_probabilities.value.builder, {});
  const int64_t dim = check_classes("class losses", log_probabilities.value, targets, options.class_dim);
  check_class_options("class losses", log_probabilities.value, dim, options);
  ClassLosses found = class_scores(log_probabilities.value, convert(targets, DType::I64), dim, options);
  found.losses = neg(found.losses);
  return found;
}

LossSum cross_entropy_sum(At logits, Value targets, const CrossEntropyOptions& options) {
  const PlaceScope place(logits);
  return class_sum("cross_entropy", logits.value, targets, options, true);
}

LossSum nll_sum(At log_probabilities, Value targets, const CrossEntropyOptions& options) {
  const PlaceScope place(log_probabilities);
  CrossEntropyOptions plain = options;
  plain.label_smoothing = 0;
  return class_sum("nll", log_probabilities.value, targets, plain, false);
}

LossSum accuracy_sum(At logits, Value targets, const CrossEntropyOptions& options) {
  const PlaceScope place(logits);
  const int64_t dim = check_classes("accuracy", logits.value, targets, options.class_dim);
  const auto body = [&](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value labels = convert(in[1], DType::I64);
    const std::optional<Value> valid = counted(labels, options.ignore_index);
    Value right = equal(argmax(in[0], dim), labels);
    if (valid) right = logical_and(right, *valid);
    const DType dtype = wide_dtype(in[0].dtype());
    return {sum(convert(right, dtype)), count_of(labels, valid, dtype)};
  };
  const Value inputs[] = {logits.value, targets};
  const std::vector<Value> results = composite(*logits.value.builder, "accuracy", inputs, body);
  return {results[0], results[1]};
}

Value huber_losses(At prediction, Value target, double delta) {
  const PlaceScope place(prediction);
  autocast("huber_loss", {&prediction.value, &target});
  if (!(delta > 0)) fail(*prediction.value.builder, fmt::format("huber: delta is {}, wanted a number above 0", delta));
  const Value error = abs(prediction.value - target);
  return where(less_equal(error, delta), error * error * 0.5, (error - 0.5 * delta) * delta);
}

Value bce_with_logits_losses(At logits, Value targets, std::optional<Value> pos_weight) {
  const PlaceScope place(logits);
  autocast("binary_cross_entropy_with_logits", {&logits.value, &targets});
  const AutocastScope off(*logits.value.builder, {});
  const Value& x = logits.value;
  // -log(sigmoid(x)); the maximum has half of the gradient at zero, as the whole has
  const Value rest = log1p(exp(neg(abs(x)))) + maximum(neg(x), zeros_like(x));
  const Value positive = pos_weight ? ((*pos_weight - 1.0) * targets + 1.0) * rest : rest;
  return (1.0 - targets) * x + positive;
}

Value kl_div_losses(At log_probabilities, Value target, bool log_target) {
  const PlaceScope place(log_probabilities);
  autocast("kl_div", {&log_probabilities.value, &target});
  const AutocastScope off(*log_probabilities.value.builder, {});
  const Value& x = log_probabilities.value;
  if (log_target) return exp(target) * (target - x);
  const Value is_positive = greater(target, 0.0);  // 0 log 0 = 0
  return where(is_positive, target * log(where(is_positive, target, ones_like(target))), zeros_like(target)) - target * x;
}

LossSum mse_sum(At prediction, Value target) {
  const PlaceScope place(prediction);
  return element_sum("mse", "mse_loss", {prediction.value, target}, [](const std::vector<Value>& in) {
    const Value difference = in[0] - in[1];
    return difference * difference;
  });
}

LossSum huber_sum(At prediction, Value target, double delta) {
  const PlaceScope place(prediction);
  return element_sum("huber", "huber_loss", {prediction.value, target}, [delta](const std::vector<Value>& in) { return huber_losses(in[0], in[1], delta); });
}

LossSum bce_with_logits_sum(At logits, Value targets, std::optional<Value> pos_weight) {
  const PlaceScope place(logits);
  std::vector<Value> inputs{logits.value, targets};
  if (pos_weight) inputs.push_back(*pos_weight);
  return element_sum("bce_with_logits", "binary_cross_entropy_with_logits", inputs, [](const std::vector<Value>& in) {
    return bce_with_logits_losses(in[0], in[1], in.size() > 2 ? std::optional<Value>(in[2]) : std::nullopt);
  });
}

LossSum kl_div_sum(At log_probabilities, Value target, bool log_target) {
  const PlaceScope place(log_probabilities);
  return element_sum(
      "kl_div", "kl_div", {log_probabilities.value, target}, [log_target](const std::vector<Value>& in) { return kl_div_losses(in[0], in[1], log_target); }, true);
}

}  // namespace stepgraph
