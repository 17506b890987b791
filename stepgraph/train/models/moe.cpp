// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/moe.h"

#include <algorithm>

#include <fmt/core.h>

namespace stepgraph {
namespace {

/// One weight of all experts on each other; each is a parameter of its own.
Value stacked(Scope experts, int64_t count, const char* name, const Shape& shape) {
  std::vector<Value> parts;
  for (int64_t e = 0; e < count; ++e) parts.push_back(unsqueeze((experts / e / name).parameter("weight", shape, initialize::normal(0, 0.02)), 0));
  return concatenate(parts, 0);
}

ExpertResult experts_of(Scope s, Value x, const MoeOptions& options) {
  const int64_t inner = options.inner > 0 ? options.inner : 4 * options.width, width = options.width;
  ExpertWeights weights;
  weights.router = (s / "gate").parameter("weight", {options.experts, width}, initialize::normal(0, 0.02));
  weights.gate = stacked(s / "experts", options.experts, "w1", {inner, width});
  weights.down = stacked(s / "experts", options.experts, "w2", {width, inner});
  weights.up = stacked(s / "experts", options.experts, "w3", {inner, width});
  const ScopeEntry entry = s.enter();
  return mixture_of_experts(x, weights, options.routing);
}

}  // namespace

MoeResult moe(Scope s, Value tokens, const MoeOptions& options) {
  if (options.layers < 1) throw UserError(fmt::format("moe: {} layers, wanted at least 1", options.layers));
  if (options.experts < 1) throw UserError(fmt::format("moe: {} experts, wanted at least 1", options.experts));
  MoeResult result;
  // Not one repeated layer: besides the tokens' vectors each layer gives its penalties. The mixture itself is one graph for all.
  result.logits = llama_around(s, tokens, options, [&](Scope layers, Value x) {
    for (int64_t i = 0; i < options.layers; ++i) {
      ExpertResult routed;
      x = llama_layer(layers / i, x, options, [&](Scope layer, Value y) {
        routed = experts_of(layer / "block_sparse_moe", y, options);
        return routed.result;
      });
      result.balance = i == 0 ? routed.balance : result.balance + routed.balance;
      result.squares = i == 0 ? routed.squares : result.squares + routed.squares;
      result.dropped = i == 0 ? routed.dropped : result.dropped + routed.dropped;
    }
    return x;
  }, "moe");
  result.balance = result.balance / static_cast<double>(options.layers);
  result.squares = result.squares / static_cast<double>(options.layers);
  return result;
}

Loss moe_loss(Scope s, const MoeResult& result, Value targets, const MoeOptions& options, const MoePenalties& penalties) {
  Loss loss = cross_entropy(result.logits, targets);
  const DType dtype = loss.numerator.dtype();
  if (s.training() && (penalties.balance != 0 || penalties.squares != 0)) {
    const Value counted = sum(convert(not_equal(targets, -100.0), dtype), {1});
    const Value penalty = result.balance * penalties.balance + result.squares * penalties.squares;
    loss.numerator = loss.numerator + sum(convert(penalty, dtype) * counted);
  }
  const Value dropped = sum(convert(result.dropped, dtype));
  const Value choices = size_value(s.builder(), dtype, targets.dim(0) * targets.dim(1) * Dim(options.layers * options.routing.top_k));
  loss.metric("dropped", dropped, choices);
  return loss;
}

}  // namespace stepgraph
