// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/ops/composite/recurrent.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

/// Parameters of one layer in one direction, whose input has `width` features.
RecurrentWeights declare(Scope s, Cell cell, DType dtype, int64_t width, const std::string& suffix, const RecurrentLayerOptions& options,
                         const std::source_location& location) {
  const int64_t rows = gates(cell) * options.hidden;
  const double bound = 1 / std::sqrt(static_cast<double>(options.hidden));
  const auto parameter = [&](const char* name, const Shape& shape) {
    return s.parameter(name + suffix, shape, initialize::uniform(-bound, bound), dtype, location);
  };
  RecurrentWeights weights;
  weights.input = parameter("weight_ih", {rows, width});
  weights.hidden = parameter("weight_hh", {rows, options.hidden});
  if (!options.bias) return weights;
  weights.input_bias = parameter("bias_ih", {rows});
  weights.hidden_bias = parameter("bias_hh", {rows});
  return weights;
}

Value recurrent(Scope s, Value x, Cell cell, const char* layer, const RecurrentLayerOptions& options, const std::source_location& location) {
  const PlaceScope place(x, location);
  const ScopeEntry entry = s.enter();
  if (x.rank() != 3 || !x.dim(-1).is_constant())
    fail(s.builder(), fmt::format("{}: found {}, wanted three dims of which the last is constant", layer, text(x.type())));
  if (options.hidden < 1 || options.layers < 1)
    fail(s.builder(), fmt::format("{}: found {} layers of {} hidden features, wanted at least 1", layer, options.layers, options.hidden));
  if (!(options.dropout >= 0 && options.dropout <= 1)) fail(s.builder(), fmt::format("{}: dropout rate {} is outside [0, 1]", layer, options.dropout));
  const int64_t directions = options.bidirectional ? 2 : 1;
  std::vector<RecurrentWeights> weights;
  int64_t width = x.dim(-1).constant();
  for (int64_t l = 0; l < options.layers; ++l) {
    for (int64_t direction = 0; direction < directions; ++direction)
      weights.push_back(declare(s, cell, s.parameter_dtype(x), width, fmt::format("_l{}{}", l, direction == 1 ? "_reverse" : ""), options, location));
    width = directions * options.hidden;
  }
  const Value steps = options.batch_first ? transpose(x, 0, 1) : x;
  const Shape start{options.layers * directions, steps.dim(1), options.hidden};
  const std::vector<Value> starts(static_cast<size_t>(states(cell)), full(s.builder(), s.parameter_dtype(x), start, 0));
  RecurrentOptions stack;
  stack.bidirectional = options.bidirectional;
  if (s.training() && options.dropout != 0 && options.layers > 1) stack.dropout = options.dropout, stack.key = s.key();
  const Value outputs = recurrent_stack(steps, cell, starts, weights, stack).outputs;
  return options.batch_first ? transpose(outputs, 0, 1) : outputs;
}

}  // namespace

Value lstm(Scope s, Value x, const RecurrentLayerOptions& options, std::source_location location) {
  return recurrent(s, x, Cell::Lstm, "lstm", options, location);
}
Value gru(Scope s, Value x, const RecurrentLayerOptions& options, std::source_location location) {
  return recurrent(s, x, Cell::Gru, "gru", options, location);
}

}  // namespace stepgraph
