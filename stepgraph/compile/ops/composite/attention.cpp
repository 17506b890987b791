// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/attention.h"

#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

/// All dims but the last two are batch dims of the product.
MatMul batched(int64_t rank, int64_t lhs_contract, int64_t rhs_contract) {
  MatMul spec;
  for (int64_t d = 0; d + 2 < rank; ++d) spec.lhs_batch.push_back(d);
  spec.rhs_batch = spec.lhs_batch;
  spec.lhs_contract = {lhs_contract};
  spec.rhs_contract = {rhs_contract};
  return spec;
}

void check_operands(const Value& q, const Value& k, const Value& v) {
  const SymbolTable& symbols = q.builder->module().symbols;
  const auto equal = [&](const Dim& a, const Dim& b) { return symbols.equal(a, b) == Truth::True; };
  bool fits = q.rank() >= 2 && k.rank() == q.rank() && v.rank() == q.rank() && q.dtype() == k.dtype() && q.dtype() == v.dtype();
  for (int64_t d = 0; fits && d + 2 < q.rank(); ++d) fits = equal(q.dim(d), k.dim(d)) && equal(q.dim(d), v.dim(d));
  fits = fits && equal(q.dim(-1), k.dim(-1)) && equal(k.dim(-2), v.dim(-2));
  if (!fits)
    fail(*q.builder, fmt::format("attention: found query {}, key {}, value {}, wanted [..., T, D], [..., S, D], [..., S, E] of one dtype",
                                 text(q.type()), text(k.type()), text(v.type())));
  if (!is_floating(q.dtype())) fail(*q.builder, fmt::format("attention: found {}, wanted a floating dtype", text(q.type())));
}

/// Scores with what may not be seen at -inf.
Value masked(Value scores, const std::optional<Value>& mask, bool causal) {
  Builder& builder = *scores.builder;
  const double never = -std::numeric_limits<double>::infinity();
  std::optional<Value> allowed;
  if (causal) {
    const Shape square{scores.dim(-2), scores.dim(-1)};
    allowed = greater_equal(iota(builder, DType::I64, square, 0), iota(builder, DType::I64, square, 1));
  }
  if (mask && mask->dtype() == DType::Bool) allowed = allowed ? logical_and(*allowed, *mask) : *mask;
  if (mask && mask->dtype() != DType::Bool) scores = scores + convert(*mask, scores.dtype());
  return allowed ? where(*allowed, scores, scalar(builder, scores.dtype(), never)) : scores;
}

/// Heads of key and value repeated for the queries that share them; x itself when nothing is shared.
Value repeated_heads(const Value& x, const Value& query) {
  if (query.rank() < 3 || x.rank() != query.rank() || x.dim(-3) == query.dim(-3)) return x;
  const std::optional<Dim> sharing = x.dim(-3) == Dim(0) ? std::nullopt : exact_quotient(query.dim(-3), x.dim(-3));
  if (!sharing) return x;  // what does not fit is named by check_operands
  const int64_t dim = x.rank() - 3;
  Shape wide = x.shape(), merged = x.shape();
  wide.insert(wide.begin() + dim + 1, *sharing);
  merged[static_cast<size_t>(dim)] = query.dim(-3);
  return reshape(broadcast_to(unsqueeze(x, dim + 1), wide), merged);
}

}  // namespace

Value scaled_dot_product_attention(At query, Value key, Value value, const AttentionOptions& options) {
  const PlaceScope place(query);
  Builder& builder = *query.value.builder;
  autocast("scaled_dot_product_attention", {&query.value, &key, &value});
  const bool random = options.dropout != 0;
  if (random && !options.key) fail(builder, "attention: dropout needs a key");
  double scale = 1;
  if (options.scale) {
    scale = *options.scale;
  } else if (query->dim(-1).is_constant()) {
    scale = 1 / std::sqrt(static_cast<double>(query->dim(-1).constant()));
  } else {
    fail(builder, fmt::format("attention: the last dim of {} is symbolic; give the scale", text(query->type())));
  }
  if (!random) {
    std::vector<Value> inputs{query.value, key, value};
    if (options.mask) inputs.push_back(options.mask->dtype() == DType::Bool || is_floating(options.mask->dtype()) ? *options.mask : convert(*options.mask, query->dtype()));
    return builder.emit(Attention{scale, options.causal}, inputs)[0];
  }
  key = repeated_heads(key, query.value);
  value = repeated_heads(value, query.value);
  check_operands(query.value, key, value);
  std::vector<Value> inputs{query.value, key, value};
  const size_t mask_at = inputs.size();
  if (options.mask) inputs.push_back(*options.mask);
  const size_t key_at = inputs.size();
  if (random) inputs.push_back(*options.key);
  const auto body = [&](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const int64_t rank = in[0].rank();
    const Value scores = dot_general(in[0] * scale, in[1], batched(rank, rank - 1, rank - 1));
    const std::optional<Value> mask = options.mask ? std::optional<Value>(in[mask_at]) : std::nullopt;
    const Value allowed = masked(scores, mask, options.causal);
    // Under the causal mask alone key 0 is always seen.
    Value weights = mask ? safe_softmax(allowed, -1) : softmax(allowed, -1);
    if (random) weights = dropout(weights, options.dropout, in[key_at]);
    return {dot_general(weights, in[2], batched(rank, rank - 1, rank - 2))};
  };
  return composite(builder, "attention", inputs, body)[0];
}

Value split_heads(At x, int64_t heads) {
  const PlaceScope place(x);
  const Value& v = x.value;
  if (v.rank() < 2 || heads < 1) fail(*v.builder, fmt::format("split_heads: {} heads of {}", heads, text(v.type())));
  const std::optional<Dim> width = exact_quotient(v.dim(-1), Dim(heads));
  if (!width) fail(*v.builder, fmt::format("split_heads: the last dim of {} is no multiple of {} heads", text(v.type()), heads));
  const Value apart = unflatten(v, -1, {Dim(heads), *width});
  return transpose(apart, -3, -2);
}

Value merge_heads(At x) {
  const PlaceScope place(x);
  return flatten(transpose(x.value, -3, -2), -2, -1);
}

}  // namespace stepgraph
