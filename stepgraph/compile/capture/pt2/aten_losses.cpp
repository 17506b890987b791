// SPDX-License-Identifier: Apache-2.0
// Losses. reduction: 0 none, 1 mean, 2 sum.
#include <cmath>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/functions_more.h"

namespace stepgraph::pt2 {
namespace {

void reduced(Call& call, const Value& losses) {
  switch (call.integer("reduction", 1)) {
    case 0: return call.result(losses);
    case 1: return call.result(losses.rank() == 0 ? losses : mean(losses));
    default: return call.result(losses.rank() == 0 ? losses : sum(losses));
  }
}
std::pair<Value, Value> prediction_and_target(Call& call) {
  const Value a = call.tensor("self"), b = call.tensor("target");
  const DType dtype = result_type({a, b});
  return {convert(a, dtype), convert(b, dtype)};
}
void mse_row(Call& call) {
  const auto [a, b] = prediction_and_target(call);
  const Value error = a - b;
  reduced(call, error * error);
}
void l1_row(Call& call) {
  const auto [a, b] = prediction_and_target(call);
  reduced(call, abs(a - b));
}
void smooth_l1_row(Call& call) {
  const auto [a, b] = prediction_and_target(call);
  const double beta = call.real("beta", 1);
  const Value error = abs(a - b);
  if (beta == 0) return reduced(call, error);
  reduced(call, where(less(error, beta), error * error * (0.5 / beta), error - 0.5 * beta));
}
void huber_row(Call& call) {
  const auto [a, b] = prediction_and_target(call);
  const double delta = call.real("delta", 1);
  const Value error = abs(a - b);
  reduced(call, where(less_equal(error, delta), error * error * 0.5, (error - 0.5 * delta) * delta));
}
Value weighted(Call& call, const Value& losses) { return call.has("weight") ? losses * call.tensor("weight") : losses; }
void bce_row(Call& call) {
  // log clamped at -100; its gradient by p - t over p (1 - p), floored, as PyTorch's.
  const auto [p, t] = prediction_and_target(call);
  const Value positive = clamp(log(p), -100.0, std::nullopt), negative = clamp(log1p(neg(p)), -100.0, std::nullopt);
  reduced(call, weighted(call, neg(t * positive + (1.0 - t) * negative)));
}
void bce_logits_row(Call& call) {
  const auto [x, t] = prediction_and_target(call);
  const Value log_one_plus = log1p(exp(neg(abs(x))));  // log(1 + e^-|x|)
  Value losses;
  if (call.has("pos_weight")) {
    const Value factor = (call.tensor("pos_weight") - 1.0) * t + 1.0;
    losses = (1.0 - t) * x + factor * (log_one_plus + relu(neg(x)));
  } else {
    losses = (1.0 - t) * x + log_one_plus + relu(neg(x));
  }
  reduced(call, weighted(call, losses));
}
void kl_row(Call& call) {
  const auto [x, t] = prediction_and_target(call);
  Value losses;
  if (call.boolean("log_target", false)) {
    losses = exp(t) * (t - x);
  } else {
    const Value is_positive = greater(t, 0.0);
    losses = where(is_positive, t * log(where(is_positive, t, ones_like(t))), zeros_like(t)) - t * x;
  }
  reduced(call, losses);
}
void soft_margin_row(Call& call) {
  const auto [x, t] = prediction_and_target(call);
  reduced(call, log1p(exp(neg(x * t))));
}
void cosine_similarity_row(Call& call) {
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

/// Log-probabilities [N, C, ...] (or [C]) and targets: the negative of the target's, weighted; what counts is not ignored.
struct Picked {
  Value losses, weights;
};
Picked pick(Call& call, const Value& log_probabilities, const Value& target, int64_t class_dim) {
  const int64_t ignored = call.integer("ignore_index", -100);
  const Value counts = not_equal(target, static_cast<double>(ignored));
  const Value safe = where(counts, target, zeros_like(target));
  const Value found = squeeze(gather(log_probabilities, class_dim, unsqueeze(safe, class_dim)), {class_dim});
  Value weights = convert(counts, log_probabilities.dtype());
  if (call.has("weight")) {
    const Value weight = convert(call.tensor("weight"), log_probabilities.dtype());
    weights = where(counts, index_select(weight, 0, safe), zeros_like(weights));
  }
  return {where(counts, neg(found) * weights, zeros_like(found)), weights};
}
void finish_weighted(Call& call, const Value& losses, const Value& weights) {
  switch (call.integer("reduction", 1)) {
    case 0: return call.result(losses);
    case 1: return call.result(losses.rank() == 0 ? losses / weights : sum(losses) / sum(weights));
    default: return call.result(losses.rank() == 0 ? losses : sum(losses));
  }
}
void cross_entropy_row(Call& call) {
  Value x = call.tensor("self");
  const Value target = call.tensor("target");
  const DType dtype = x.dtype();
  if (dtype == DType::BF16 || dtype == DType::F16) x = convert(x, DType::F32);
  const int64_t class_dim = x.rank() == 1 ? 0 : 1;
  const double smoothing = call.real("label_smoothing", 0);
  const Value logs = log_softmax(x, class_dim);
  const Dim classes = x.dim(class_dim);
  Shape channel(static_cast<size_t>(x.rank()), Dim(1));
  channel[static_cast<size_t>(class_dim)] = classes;
  auto class_weighted = [&](const Value& values) { return call.has("weight") ? values * reshape(convert(call.tensor("weight"), values.dtype()), channel) : values; };
  if (is_floating(target.dtype())) {  // probabilities of classes
    Value wanted = convert(target, logs.dtype());
    if (smoothing > 0) wanted = wanted * (1 - smoothing) + smoothing / size_value(call.builder(), logs.dtype(), classes);
    const Value losses = neg(sum(class_weighted(logs * wanted), {class_dim}));
    if (call.integer("reduction", 1) == 1) return call.result(losses.rank() == 0 ? losses : sum(losses) / size_value(call.builder(), logs.dtype(), element_count(losses.shape())));
    return reduced(call, losses);
  }
  const Picked picked = pick(call, logs, target, class_dim);
  Value losses = picked.losses;
  if (smoothing > 0) {
    const Value counts = not_equal(target, static_cast<double>(call.integer("ignore_index", -100)));
    Value smooth = neg(sum(class_weighted(logs), {class_dim}));
    smooth = where(counts, smooth, zeros_like(smooth)) / size_value(call.builder(), logs.dtype(), classes);
    losses = losses * (1 - smoothing) + smooth * smoothing;
  }
  finish_weighted(call, losses, picked.weights);
  (void)dtype;
}
void nll_row(Call& call) {
  const Value logs = call.tensor("self");
  const Picked picked = pick(call, logs, call.tensor("target"), logs.rank() == 1 ? 0 : 1);
  finish_weighted(call, picked.losses, picked.weights);
}
void nll_forward_row(Call& call) {
  nll_row(call);
  const Value logs = call.tensor("self");
  const Value weights = pick(call, logs, call.tensor("target"), logs.rank() == 1 ? 0 : 1).weights;
  call.result(weights.rank() == 0 ? weights : sum(weights));
}

}  // namespace

std::vector<NamedRow> loss_rows() {
  return {
      {"mse_loss", mse_row}, {"l1_loss", l1_row}, {"smooth_l1_loss", smooth_l1_row}, {"huber_loss", huber_row}, {"binary_cross_entropy", bce_row},
      {"binary_cross_entropy_with_logits", bce_logits_row}, {"kl_div", kl_row}, {"soft_margin_loss", soft_margin_row}, {"cosine_similarity", cosine_similarity_row},
      {"cross_entropy_loss", cross_entropy_row}, {"nll_loss", nll_row}, {"nll_loss_nd", nll_row}, {"nll_loss2d", nll_row}, {"nll_loss_forward", nll_forward_row},
      {"nll_loss2d_forward", nll_forward_row},
  };
}

}  // namespace stepgraph::pt2
