// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/rotary.h"

#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/composite/precision.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

struct Pairs {
  Value first, second;
};
Pairs apart(const Value& x, bool interleaved) {
  const int64_t last = x.rank() - 1, half = x.dim(-1).constant() / 2;
  if (interleaved) return {slice(x, last, 0, 2 * half, 2), slice(x, last, 1, 2 * half, 2)};
  return {slice(x, last, 0, half), slice(x, last, half, 2 * half)};
}
Value together(const Pairs& pairs, bool interleaved) {
  const int64_t last = pairs.first.rank() - 1;
  if (!interleaved) return concatenate(std::vector<Value>{pairs.first, pairs.second}, last);
  return flatten(concatenate(std::vector<Value>{unsqueeze(pairs.first, last + 1), unsqueeze(pairs.second, last + 1)}, last + 1), last, last + 1);
}

}  // namespace

Value rotary_embedding(At x, const RotaryOptions& options) {
  const PlaceScope place(x);
  Builder& builder = *x.value.builder;
  if (!is_floating(x->dtype()) || x->rank() < 2 || !x->dim(-1).is_constant() || x->dim(-1).constant() % 2 != 0)
    fail(builder, fmt::format("rotary_embedding: found {}, wanted floating [..., T, D] with a constant, even D", text(x->type())));
  if (!(options.theta > 0)) fail(builder, fmt::format("rotary_embedding: theta is {}, wanted a number above 0", options.theta));
  const int64_t half = x->dim(-1).constant() / 2;
  const auto body = [&](Builder& inner, const std::vector<Value>& in) -> std::vector<Value> {
    const Value wide = widened(in[0]);
    std::vector<double> frequencies;
    for (int64_t j = 0; j < half; ++j) frequencies.push_back(std::pow(options.theta, -static_cast<double>(2 * j) / static_cast<double>(2 * half)));
    const Value frequency = constant(inner, Literal::from_doubles(wide.dtype(), {half}, frequencies));
    const Value positions = in.size() > 1 ? convert(in[1], wide.dtype()) : iota(inner, wide.dtype(), {wide.dim(-2)}, 0);
    const Value angles = unsqueeze(positions, positions.rank()) * frequency;
    const Value c = cos(angles), s = sin(angles);
    const Pairs pairs = apart(wide, options.interleaved);
    const Pairs turned{pairs.first * c - pairs.second * s, pairs.second * c + pairs.first * s};
    return {narrowed(together(turned, options.interleaved), in[0].dtype())};
  };
  std::vector<Value> inputs{x.value};
  if (options.positions) inputs.push_back(*options.positions);
  return composite(builder, "rotary_embedding", inputs, body)[0];
}

}  // namespace stepgraph
