// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/rows/attention_primitives.h"

#include <limits>
#include <optional>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/kernels/attention.h"

namespace stepgraph {
namespace {

constexpr double no_score = -std::numeric_limits<double>::infinity();

/// The operands of an attention in a wide dtype. Grouped queries are a dim of their own, so that keys and values are never repeated.
class AttentionSteps {
 public:
  AttentionSteps(const Attention& op, std::span<const Value> inputs, const AttentionInputs& at)
      : op_(op), builder_(*inputs[0].builder), wide_(wide_dtype(inputs[0].dtype())) {
    q_ = widened(inputs[0]), k_ = widened(inputs[1]), v_ = widened(inputs[2]);
    if (at.mask) mask_ = inputs[*at.mask];
    if (at.key) key_ = inputs[*at.key];
    const int64_t rank = q_.rank();
    if (rank >= 3 && q_.dim(-3) != k_.dim(-3)) shared_ = exact_quotient(q_.dim(-3), k_.dim(-3));
  }

  Value widened(const Value& x) const { return convert(x, wide_); }
  const Value& q() const { return q_; }
  const Value& k() const { return k_; }
  const Value& v() const { return v_; }

  /// [..., H, T, S], -inf where a query must not see a key.
  Value scores() const {
    Value scores = queries_with_keys(q_, k_) * op_.scale;
    std::optional<Value> allowed;
    if (op_.causal) {
      const Shape square{scores.dim(-2), scores.dim(-1)};
      allowed = greater_equal(iota(builder_, DType::I64, square, 0), iota(builder_, DType::I64, square, 1));
    }
    if (mask_ && mask_->dtype() != DType::Bool)
      scores = scores + widened(*mask_);
    else if (mask_)
      allowed = allowed ? logical_and(*allowed, *mask_) : *mask_;
    return allowed ? where(*allowed, scores, scalar(builder_, wide_, no_score)) : scores;
  }
  /// Weights, or their gradients, as dropout leaves them.
  Value dropped(const Value& weights) const {
    if (!key_) return weights;
    const Value draw = builder_.emit_one(Random{RandomKind::Uniform, DType::F32, weights.shape(), op_.place}, {*key_});
    const double kept = op_.dropout == 1 ? 0.0 : 1 / (1 - op_.dropout);
    return where(greater_equal(draw, op_.dropout), weights * kept, zeros_like(weights));
  }
  /// [..., H, T, X] with [..., Hk, S, X] over X: [..., H, T, S].
  Value queries_with_keys(const Value& rows, const Value& keys) const { return together(product(apart(rows), -1, keys, -1)); }
  /// [..., H, T, S] with [..., Hk, S, X] over S: [..., H, T, X].
  Value weighted_keys(const Value& weights, const Value& keys) const { return together(product(apart(weights), -1, keys, -2)); }
  /// [..., H, T, S] with [..., H, T, X] over T and over the heads that share a key: [..., Hk, S, X].
  Value weighted_queries(const Value& weights, const Value& rows) const {
    const Value a = apart(weights), b = apart(rows);
    MatMul op;
    op.lhs_batch = batch_dims();
    op.rhs_batch = op.lhs_batch;
    for (int64_t d = static_cast<int64_t>(op.lhs_batch.size()); d + 1 < a.rank(); ++d) op.lhs_contract.push_back(d);
    op.rhs_contract = op.lhs_contract;
    return dot_general(a, b, op);
  }
  /// The sum of a gradient of the scores over what the mask was stretched along.
  Value like_mask(Value slopes) const {
    const int64_t extra = slopes.rank() - mask_->rank();
    Dims dims;
    for (int64_t d = 0; d < slopes.rank(); ++d)
      if (d < extra || mask_->dim(d - extra) != slopes.dim(d)) dims.push_back(d);
    if (!dims.empty()) slopes = sum(slopes, dims, true);
    return convert(reshape(slopes, mask_->shape()), mask_->dtype());
  }

 private:
  Dims batch_dims() const {
    Dims dims;
    for (int64_t d = 0; d + 2 < q_.rank(); ++d) dims.push_back(d);
    return dims;
  }
  /// [..., H, T, X] as [..., Hk, H / Hk, T, X], where heads are shared.
  Value apart(const Value& x) const { return shared_ ? unflatten(x, -3, {k_.dim(-3), *shared_}) : x; }
  Value together(const Value& x) const { return shared_ ? flatten(x, -4, -3) : x; }
  Value product(const Value& a, int64_t a_dim, const Value& b, int64_t b_dim) const {
    MatMul op;
    op.lhs_batch = batch_dims();
    op.rhs_batch = op.lhs_batch;
    op.lhs_contract = {a.rank() + a_dim};
    op.rhs_contract = {b.rank() + b_dim};
    return dot_general(a, b, op);
  }

  const Attention& op_;
  Builder& builder_;
  DType wide_;
  Value q_, k_, v_;
  std::optional<Value> mask_, key_;
  std::optional<Dim> shared_;
};

/// x where it is not -inf, else 0: what a row of scores is shifted by.
Value shift_of(const Value& x) { return where(equal(x, no_score), zeros_like(x), x); }

struct Softened {
  Value weights;  ///< [..., H, T, S]; zeros in a row that sees no key
  Value sums;     ///< log-sum-exp, [..., H, T, 1]; -inf there
};
Softened soften(const Value& scores) {
  const Value shift = shift_of(stop_gradient(amax(scores, {-1}, true)));
  const Value powers = exp(scores - shift), total = sum(powers, {-1}, true);
  const Value sees_none = equal(total, 0.0), divisor = where(sees_none, ones_like(total), total);
  return {powers / divisor, where(sees_none, full_like(total, no_score), shift + log(divisor))};
}

}  // namespace

std::vector<Value> attention_by_primitives(const Op& op, std::span<const Value> inputs) {
  const auto& attention = std::get<Attention>(op);
  const AttentionSteps steps(attention, inputs, AttentionInputs(attention, inputs.size()));
  const Softened softened = soften(steps.scores());
  return {convert(steps.weighted_keys(steps.dropped(softened.weights), steps.v()), inputs[2].dtype()), squeeze(softened.sums, {-1})};
}

std::vector<Value> attention_gradient_by_primitives(const Op& op, std::span<const Value> inputs) {
  const auto& gradient = std::get<AttentionGradient>(op);
  const AttentionInputs at(gradient, inputs.size());
  const size_t first = at.own;
  const AttentionSteps steps(gradient, inputs, at);
  const Value d_out = steps.widened(inputs[first + 2]);
  // From the scores again, as the oracle, not from `out` and the log-sum-exp with their rounding.
  const Value weights = soften(steps.scores()).weights;
  const Value moved = steps.dropped(steps.queries_with_keys(d_out, steps.v()));
  const Value slopes = weights * (moved - (sum(weights * moved, {-1}, true) - unsqueeze(steps.widened(inputs[first + 3]), -1)));
  const Value scaled = slopes * gradient.scale;
  std::vector<Value> results = {convert(steps.weighted_keys(scaled, steps.k()), inputs[0].dtype()),
                                convert(steps.weighted_queries(scaled, steps.q()), inputs[1].dtype()),
                                convert(steps.weighted_queries(steps.dropped(weights), d_out), inputs[2].dtype())};
  if (gradient.mask_gradient) results.push_back(steps.like_mask(slopes));
  return results;
}

}  // namespace stepgraph
