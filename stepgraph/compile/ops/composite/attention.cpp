// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/attention.h"

#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

/// Integers are added to the scores as numbers of the query's dtype.
Value floating_mask(const Value& mask, DType dtype) { return is_floating(mask.dtype()) ? mask : convert(mask, dtype); }

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
  Attention op{scale, options.causal, options.dropout, {}};
  std::vector<Value> inputs{query.value, key, value};
  if (options.mask) inputs.push_back(options.mask->dtype() == DType::Bool ? *options.mask : floating_mask(*options.mask, query->dtype()));
  if (random) {
    inputs.push_back(*options.key);
    Shape weights = query->shape();
    if (key.rank() >= 2 && !weights.empty()) weights.back() = key.dim(-2);
    op.place = DrawPlace::whole(weights);
  }
  return builder.emit(std::move(op), inputs)[0];
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
