// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/losses.h"

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/composite/precision.h"
#include "stepgraph/compile/ops/functions_place.h"

namespace stepgraph {
namespace {

/// The class dim, counted from the front, of operands that fit each other.
int64_t check_classes(const char* function, const Value& logits, const Value& targets, int64_t class_dim) {
  if (!is_floating(logits.dtype()) || logits.rank() < 1)
    fail(*logits.builder, fmt::format("{}: found logits {}, wanted a floating tensor with a dim of classes", function, text(logits.type())));
  if (!is_integer(targets.dtype()))
    fail(*logits.builder, fmt::format("{}: found targets {}, wanted an integer dtype", function, text(targets.type())));
  const int64_t dim = dim_of(function, logits, class_dim);
  Shape wanted = logits.shape();
  wanted.erase(wanted.begin() + dim);
  bool fits = wanted.size() == targets.shape().size();
  for (size_t i = 0; fits && i < wanted.size(); ++i)
    fits = logits.builder->module().symbols.equal(wanted[i], targets.shape()[i]) == Truth::True;
  if (!fits)
    fail(*logits.builder, fmt::format("{}: logits {} with classes in dim {} want targets of {}, found {}", function, text(logits.type()), dim,
                                      text(wanted), text(targets.type())));
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

DType sum_dtype(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

}  // namespace

LossSum cross_entropy_sum(At logits, Value targets, const CrossEntropyOptions& options) {
  const PlaceScope place(logits);
  const int64_t dim = check_classes("cross_entropy", logits.value, targets, options.class_dim);
  const auto body = [&](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value wide = widened(in[0]);
    const Value labels = convert(in[1], DType::I64);
    const std::optional<Value> valid = counted(labels, options.ignore_index);
    // Ignored targets may hold anything, so they must not reach the gather.
    const Value safe = valid ? where(*valid, labels, zeros_like(labels)) : labels;
    Value picked = squeeze(gather(log_softmax(wide, dim), dim, unsqueeze(safe, dim)), {dim});
    if (valid) picked = where(*valid, picked, zeros_like(picked));
    return {-sum(picked), count_of(labels, valid, sum_dtype(wide.dtype()))};
  };
  const Value inputs[] = {logits.value, targets};
  const std::vector<Value> results = composite(*logits.value.builder, "cross_entropy", inputs, body);
  return {results[0], results[1]};
}

LossSum accuracy_sum(At logits, Value targets, const CrossEntropyOptions& options) {
  const PlaceScope place(logits);
  const int64_t dim = check_classes("accuracy", logits.value, targets, options.class_dim);
  const auto body = [&](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Value labels = convert(in[1], DType::I64);
    const std::optional<Value> valid = counted(labels, options.ignore_index);
    Value right = equal(argmax(in[0], dim), labels);
    if (valid) right = logical_and(right, *valid);
    const DType dtype = sum_dtype(in[0].dtype());
    return {sum(convert(right, dtype)), count_of(labels, valid, dtype)};
  };
  const Value inputs[] = {logits.value, targets};
  const std::vector<Value> results = composite(*logits.value.builder, "accuracy", inputs, body);
  return {results[0], results[1]};
}

LossSum mse_sum(At prediction, Value target) {
  const PlaceScope place(prediction);
  const auto body = [](Builder& builder, const std::vector<Value>& in) -> std::vector<Value> {
    const Value difference = widened(in[0]) - widened(in[1]);
    if (!is_floating(difference.dtype())) fail(builder, fmt::format("mse: found {}, wanted a floating dtype", text(in[0].type())));
    const Value count = size_value(builder, difference.dtype(), element_count(difference.shape()));
    return {sum(difference * difference), count};
  };
  const Value inputs[] = {prediction.value, target};
  const std::vector<Value> results = composite(*prediction.value.builder, "mse", inputs, body);
  return {results[0], results[1]};
}

}  // namespace stepgraph
