// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/linear.h"

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {

Value linear(At x, Value weight, std::optional<Value> bias) {
  const PlaceScope place(x);
  Builder& builder = *x.value.builder;
  if (bias)
    autocast("linear", {&x.value, &weight, &*bias});
  else
    autocast("linear", {&x.value, &weight});
  if (weight.rank() != 2) fail(builder, fmt::format("linear: found weight {}, wanted [out, in]", text(weight.type())));
  if (x->rank() < 1) fail(builder, fmt::format("linear: found input {}, wanted [..., in]", text(x->type())));
  if (builder.module().symbols.equal(x->dim(-1), weight.dim(1)) != Truth::True)
    fail(builder, fmt::format("linear: last dim of input {} and dim 1 of weight {} differ", text(x->type()), text(weight.type())));
  if (bias && (bias->rank() != 1 || builder.module().symbols.equal(bias->dim(0), weight.dim(0)) != Truth::True))
    fail(builder, fmt::format("linear: found bias {}, wanted [{}]", text(bias->type()), weight.dim(0).text()));
  std::vector<Value> inputs{x.value, weight};
  if (bias) inputs.push_back(*bias);
  const auto body = [](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    MatMul spec;
    spec.lhs_contract = {in[0].rank() - 1};
    spec.rhs_contract = {1};
    if (in.size() == 2) return {dot_general(in[0], in[1], spec)};
    return {convert(unrounded_dot_general(in[0], in[1], spec) + widened(in[2]), promote(in[0].dtype(), in[2].dtype()))};
  };
  return composite(builder, "linear", inputs, body)[0];
}

Value embedding(At indices, Value weight) {
  const PlaceScope place(indices);
  Builder& builder = *indices.value.builder;
  if (!is_integer(indices->dtype())) fail(builder, fmt::format("embedding: found indices {}, wanted an integer dtype", text(indices->type())));
  if (weight.rank() != 2) fail(builder, fmt::format("embedding: found weight {}, wanted [count, width]", text(weight.type())));
  const auto body = [](Builder&, const std::vector<Value>& in) -> std::vector<Value> { return {index_select(in[1], 0, in[0])}; };
  const Value inputs[] = {indices.value, weight};
  return composite(builder, "embedding", inputs, body)[0];
}

}  // namespace stepgraph
