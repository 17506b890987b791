// SPDX-License-Identifier: Apache-2.0
// Losses. reduction: 0 none, 1 mean, 2 sum.
#include <cmath>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/composite/losses.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

std::pair<Value, Value> prediction_and_target(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.tensor("target");
  const DType dtype = result_type({a, b});
  return {convert(a, dtype), convert(b, dtype)};
}
void mse_row(OperatorCall& call) {
  const auto [a, b] = prediction_and_target(call);
  const Value error = a - b;
  loss_result(call, error * error);
}
void l1_row(OperatorCall& call) {
  const auto [a, b] = prediction_and_target(call);
  loss_result(call, abs(a - b));
}
void smooth_l1_row(OperatorCall& call) {
  const auto [a, b] = prediction_and_target(call);
  const double beta = call.real("beta", 1);
  const Value error = abs(a - b);
  if (beta == 0) return loss_result(call, error);
  loss_result(call, where(less(error, beta), error * error * (0.5 / beta), error - 0.5 * beta));
}
void huber_row(OperatorCall& call) {
  const auto [a, b] = prediction_and_target(call);
  loss_result(call, huber_losses(a, b, call.real("delta", 1)));
}
Value weighted(OperatorCall& call, const Value& losses) { return call.has("weight") ? losses * call.tensor("weight") : losses; }
void bce_row(OperatorCall& call) {
  // log clamped at -100; its gradient by p - t over p (1 - p), floored, as PyTorch's.
  const auto [p, t] = prediction_and_target(call);
  const auto positive = [](const Value& x) { return clamp(log(x), -100.0, std::nullopt); };
  const auto negative = [](const Value& x) { return clamp(log1p(neg(x)), -100.0, std::nullopt); };
  const CompositeBody losses = [&](Builder&, const std::vector<Value>& in) {
    return std::vector<Value>{neg(in[1] * positive(in[0]) + (1.0 - in[1]) * negative(in[0]))};
  };
  const CompositeBody gradient = [&](Builder&, const std::vector<Value>& in) {
    const Value &x = in[0], &target = in[1], &g = in[3];
    const Value width = (1.0 - x) * x;
    return std::vector<Value>{g * (x - target) / maximum(width, full_like(width, 1e-12)), g * (negative(x) - positive(x))};
  };
  loss_result(call, weighted(call, composite(call.builder(), "binary_cross_entropy", std::vector<Value>{p, t}, losses, gradient)[0]));
}
void bce_logits_row(OperatorCall& call) {
  const auto [x, t] = prediction_and_target(call);
  loss_result(call, weighted(call, bce_with_logits_losses(x, t, call.maybe_tensor("pos_weight"))));
}
void kl_row(OperatorCall& call) {
  const auto [x, t] = prediction_and_target(call);
  loss_result(call, kl_div_losses(x, t, call.boolean("log_target", false)));
}
void soft_margin_row(OperatorCall& call) {
  const auto [x, t] = prediction_and_target(call);
  loss_result(call, log1p(exp(neg(x * t))));
}
void cosine_similarity_row(OperatorCall& call) {
  const Value a = call.tensor("x1"), b = call.tensor("x2");
  const int64_t dim = call.integer("dim", 1);
  const double epsilon = call.real("eps", 1e-8);
  auto normed = [&](const Value& x) {
    const Value squares = sum(x * x, {dim}, true);
    const Value norm = sqrt(where(equal(squares, 0.0), ones_like(squares), squares));
    return x / maximum(where(equal(squares, 0.0), zeros_like(norm), norm), full_like(norm, epsilon));
  };
  call.result(sum(normed(a) * normed(b), {dim}));
}

/// The loss of each target, and the weight with which it counts.
struct Picked {
  Value losses, weights;
};
Picked pick(OperatorCall& call, const Value& log_probabilities, const Value& target, double smoothing = 0) {
  CrossEntropyOptions options;
  options.class_dim = log_probabilities.rank() == 1 ? 0 : 1;
  options.ignore_index = call.integer("ignore_index", -100);
  options.weight = call.maybe_tensor("weight");
  options.label_smoothing = smoothing;
  const ClassLosses found = class_losses(log_probabilities, target, options);
  return {found.losses, found.weights ? *found.weights : convert(*found.counts, log_probabilities.dtype())};
}
void finish_weighted(OperatorCall& call, const Value& losses, const Value& weights) {
  switch (call.integer("reduction", 1)) {
    case 0: return call.result(losses);
    case 1: return call.result(losses.rank() == 0 ? losses / weights : sum(losses) / sum(weights));
    default: return call.result(losses.rank() == 0 ? losses : sum(losses));
  }
}
void cross_entropy_row(OperatorCall& call) {
  Value x = call.tensor("self");
  const Value target = call.tensor("target");
  if (x.dtype() == DType::BF16 || x.dtype() == DType::F16) x = convert(x, DType::F32);
  const int64_t class_dim = x.rank() == 1 ? 0 : 1;
  const double smoothing = call.real("label_smoothing", 0);
  const Value logs = log_softmax(x, class_dim);
  const Dim classes = x.dim(class_dim);
  if (is_floating(target.dtype())) {  // probabilities of classes
    Shape channel(static_cast<size_t>(x.rank()), Dim(1));
    channel[static_cast<size_t>(class_dim)] = classes;
    auto class_weighted = [&](const Value& values) { return call.has("weight") ? values * reshape(convert(call.tensor("weight"), values.dtype()), channel) : values; };
    Value wanted = convert(target, logs.dtype());
    if (smoothing > 0) wanted = wanted * (1 - smoothing) + smoothing / size_value(call.builder(), logs.dtype(), classes);
    const Value losses = neg(sum(class_weighted(logs * wanted), {class_dim}));
    if (call.integer("reduction", 1) == 1) return call.result(losses.rank() == 0 ? losses : sum(losses) / size_value(call.builder(), logs.dtype(), element_count(losses.shape())));
    return loss_result(call, losses);
  }
  const Picked picked = pick(call, logs, target, smoothing);
  finish_weighted(call, picked.losses, picked.weights);
}
void nll_row(OperatorCall& call) {
  const Value logs = call.tensor("self");
  const Picked picked = pick(call, logs, call.tensor("target"));
  finish_weighted(call, picked.losses, picked.weights);
}
void nll_forward_row(OperatorCall& call) {
  nll_row(call);
  const Value logs = call.tensor("self");
  const Value weights = pick(call, logs, call.tensor("target")).weights;
  call.result(weights.rank() == 0 ? weights : sum(weights));
}

}  // namespace

std::vector<NamedRow> loss_rows() {
  return {
      {"mse_loss", in_f32<mse_row>}, {"l1_loss", in_f32<l1_row>}, {"smooth_l1_loss", in_f32<smooth_l1_row>}, {"huber_loss", in_f32<huber_row>}, {"binary_cross_entropy", in_f32<bce_row>},
      {"binary_cross_entropy_with_logits", in_f32<bce_logits_row>}, {"kl_div", in_f32<kl_row>}, {"soft_margin_loss", in_f32<soft_margin_row>}, {"cosine_similarity", in_f32<cosine_similarity_row>},
      {"cross_entropy_loss", in_f32<cross_entropy_row>}, {"nll_loss", in_f32<nll_row>}, {"nll_loss_nd", in_f32<nll_row>}, {"nll_loss2d", in_f32<nll_row>}, {"nll_loss_forward", in_f32<nll_forward_row>},
      {"nll_loss2d_forward", in_f32<nll_forward_row>},
  };
}

}  // namespace stepgraph::pt2
