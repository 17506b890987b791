// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/experts.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

MatMul product(std::vector<int64_t> lhs_batch, std::vector<int64_t> rhs_batch, std::vector<int64_t> lhs_contract, std::vector<int64_t> rhs_contract) {
  return {std::move(lhs_batch), std::move(rhs_batch), std::move(lhs_contract), std::move(rhs_contract)};
}

/// 1 where the index is the place in a new last dim of that size, else 0.
Value one_hot(const Value& index, const Dim& size, DType dtype) {
  Shape shape = index.shape();
  shape.push_back(size);
  const Value places = iota(*index.builder, index.dtype(), shape, index.rank());
  return convert(equal(places, broadcast_to(unsqueeze(index, -1), shape)), dtype);
}

/// What the router says of each token.
struct Routing {
  Value taken;             // [B, T, E]: 1 for an expert that is chosen, else 0
  Value shares;            // [B, T, E]: its gate, else 0
  Value balance, squares;  // [B]
};

Routing route(const Value& x, const Value& router, int64_t top_k) {
  const Value logits = matmul(convert(x, router.dtype()), transpose(router, 0, 1));
  const Value log_probabilities = log_softmax(logits, -1), probabilities = exp(log_probabilities);
  const Dim experts = logits.dim(-1);
  Value left = probabilities, taken = zeros_like(probabilities);
  for (int64_t k = 0; k < top_k; ++k) {
    const Value choice = one_hot(argmax(left, -1), experts, probabilities.dtype());
    left = where(greater(choice, 0.0), full_like(left, -1), left);
    taken = taken + choice;
  }
  Routing routing;
  routing.taken = taken;
  routing.shares = taken * probabilities;
  if (top_k > 1) routing.shares = routing.shares / sum(routing.shares, {-1}, true);
  const double count = static_cast<double>(experts.constant());
  routing.balance = sum(mean(stop_gradient(taken), {1}) * mean(probabilities, {1}), {-1}) * (count / static_cast<double>(top_k));
  const Value log_sum = select(logits - log_probabilities, -1, 0);
  routing.squares = mean(log_sum * log_sum, {1});
  return routing;
}

Value gated(const Value& gate, const Value& up) { return silu(gate) * up; }

/// Every expert on every token. In: x, gate, up, down.
Value run_all(const Routing& routing, const Value& x, const Value& gate, const Value& up, const Value& down) {
  const MatMul in = product({}, {}, {2}, {2});  // [B, T, E, I]
  const Value inner = gated(dot_general(x, gate, in), dot_general(x, up, in));
  const Value out = dot_general(inner, down, product({2}, {0}, {3}, {2}));  // [E, B, T, W]
  return dot_general(convert(routing.shares, x.dtype()), out, product({0, 1}, {1, 2}, {2}, {0}));
}

struct Slots {
  Value dispatch;  // [B, T, E, C]: 1 where the token lies in that place of that expert
  Value combine;   // the same with gates
  Value dropped;   // [B]
};
Slots place_tokens(const Routing& routing, int64_t capacity) {
  // Counts of a row are exact in f32. The place of a token is the number of those before it that chose the expert: it depends on no later one.
  const Value before = cumsum(routing.taken, 1) - routing.taken;
  const Value slot = one_hot(convert(before, DType::I64), capacity, routing.taken.dtype());  // [B, T, E, C]: all zeros beyond the room
  Slots slots;
  slots.dispatch = slot * unsqueeze(routing.taken, -1);
  slots.combine = slot * unsqueeze(routing.shares, -1);
  slots.dropped = sum(routing.taken - sum(slots.dispatch, {-1}), {1, 2});
  return slots;
}

/// Each expert on the tokens in its places.
Value run_placed(const Slots& slots, const Value& x, const Value& gate, const Value& up, const Value& down) {
  const Value inputs = dot_general(convert(slots.dispatch, x.dtype()), x, product({0}, {0}, {1}, {1}));  // [B, E, C, W]
  const MatMul in = product({1}, {0}, {3}, {2});                                                         // [E, B, C, I]
  const Value inner = gated(dot_general(inputs, gate, in), dot_general(inputs, up, in));
  const Value out = dot_general(inner, down, product({0}, {0}, {3}, {2}));  // [E, B, C, W]
  return dot_general(convert(slots.combine, x.dtype()), out, product({0}, {1}, {2, 3}, {0, 2}));
}

void check_operands(const Builder& builder, const Value& x, const ExpertWeights& w, const ExpertOptions& options) {
  const auto shaped = [](const Value& value, const Shape& shape) { return value.shape() == shape; };
  bool fits = x.rank() == 3 && x.dim(1).is_constant() && w.router.rank() == 2 && w.router.dim(0).is_constant() && w.gate.rank() == 3 && is_floating(x.dtype());
  if (fits) {
    const Dim experts = w.router.dim(0), width = x.dim(2), inner = w.gate.dim(1);
    fits = shaped(w.router, {experts, width}) && shaped(w.gate, {experts, inner, width}) && shaped(w.up, w.gate.shape()) &&
           shaped(w.down, {experts, width, inner});
  }
  if (!fits)
    fail(builder, fmt::format("mixture_of_experts: found {}, router {}, gate {}, up {}, down {}, wanted [B, T, W], [E, W], [E, I, W], [E, I, W], [E, W, I]",
                              text(x.type()), text(w.router.type()), text(w.gate.type()), text(w.up.type()), text(w.down.type())));
  const int64_t experts = w.router.dim(0).constant();
  if (options.top_k < 1 || options.top_k > experts)
    fail(builder, fmt::format("mixture_of_experts: top_k is {}, wanted 1 to {} experts", options.top_k, experts));
  if (!(options.capacity_factor > 0)) fail(builder, fmt::format("mixture_of_experts: capacity_factor is {}, wanted a number above 0", options.capacity_factor));
}

}  // namespace

ExpertResult mixture_of_experts(At x, const ExpertWeights& weights, const ExpertOptions& options) {
  const PlaceScope place(x);
  Builder& builder = *x.value.builder;
  check_operands(builder, x.value, weights, options);
  ExpertWeights cast = weights;
  autocast("matmul", {&cast.gate, &cast.up, &cast.down});
  const int64_t tokens = x->dim(1).constant(), experts = weights.router.dim(0).constant();
  const double room = std::ceil(options.capacity_factor * static_cast<double>(options.top_k) * static_cast<double>(tokens) / static_cast<double>(experts));
  const auto capacity = static_cast<int64_t>(std::min(room, static_cast<double>(tokens)));
  const std::vector<Value> inputs{x.value, cast.router, cast.gate, cast.up, cast.down};
  const auto body = [&](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const Routing routing = route(in[0], in[1], options.top_k);
    const Value narrow = convert(in[0], in[2].dtype(), false);
    if (options.dense) return {run_all(routing, narrow, in[2], in[3], in[4]), routing.balance, routing.squares, zeros_like(routing.balance)};
    const Slots slots = place_tokens(routing, capacity);
    return {run_placed(slots, narrow, in[2], in[3], in[4]), routing.balance, routing.squares, slots.dropped};
  };
  const std::vector<Value> results = composite(builder, "mixture_of_experts", inputs, body);
  return {results[0], results[1], results[2], results[3]};
}

}  // namespace stepgraph
