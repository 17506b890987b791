// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/recurrent.h"

#include <fmt/core.h>

#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

const char* name_of(Cell cell) {
  switch (cell) {
    case Cell::Lstm: return "lstm";
    case Cell::Gru: return "gru";
    case Cell::Tanh: return "rnn_tanh";
    case Cell::Relu: return "rnn_relu";
  }
  throw InternalError("recurrent: unknown cell");
}

/// What products are computed in under autocast, as the linear layers inside PyTorch's recurrences.
std::optional<DType> product_dtype(const Value& x) {
  return x.dtype() == DType::F64 ? std::nullopt : cast_of(x.builder->autocast(), "linear");
}
Value cast(const Value& x, std::optional<DType> dtype) { return dtype ? convert(x, *dtype, false) : x; }

/// A product with the weight's rows, rounded together with the bias.
Value gate_product(const Value& x, const Value& weight, const std::optional<Value>& bias) {
  const Value rows = permute(weight, {1, 0});
  return bias ? convert(unrounded_matmul(x, rows) + widened(*bias), promote(x.dtype(), bias->dtype())) : matmul(x, rows);
}

/// One step: gates from the input (already multiplied), states, hidden weight and bias -> new states; the first is the output. Under autocast products are computed in `narrow`,
/// the states stay as wide as they are.
std::vector<Value> cell_step(Cell cell, const Value& from_input, const std::vector<Value>& states, const RecurrentWeights& weights, std::optional<DType> narrow) {
  const Value from_hidden = gate_product(cast(states[0], narrow), weights.hidden, weights.hidden_bias);
  if (cell == Cell::Gru) {
    const std::vector<Value> x = split(from_input, -1, 3), h = split(from_hidden, -1, 3);
    const Value r = sigmoid(x[0] + h[0]), z = sigmoid(x[1] + h[1]), n = tanh(x[2] + r * h[2]);
    return {(1.0 - z) * n + z * states[0]};
  }
  const Value gates = from_input + from_hidden;
  if (cell == Cell::Tanh) return {tanh(gates)};
  if (cell == Cell::Relu) return {relu(gates)};
  const std::vector<Value> g = split(gates, -1, 4);
  const Value c = sigmoid(g[1]) * states[1] + sigmoid(g[0]) * tanh(g[2]);
  const Value h = sigmoid(g[3]) * tanh(c);
  return {weights.projection ? gate_product(cast(h, narrow), *weights.projection, {}) : h, c};
}

void check_layer(const Value& x, Cell cell, const std::vector<Value>& found, const RecurrentWeights& weights) {
  Builder& builder = *x.builder;
  if (x.rank() != 3) fail(builder, fmt::format("{}: found {}, wanted [length, batch, features]", name_of(cell), text(x.type())));
  if (static_cast<int64_t>(found.size()) != states(cell))
    fail(builder, fmt::format("{}: found {} states, wanted {}", name_of(cell), found.size(), states(cell)));
  if (weights.input.rank() != 2 || weights.hidden.rank() != 2)
    fail(builder, fmt::format("{}: found weights {} and {}, wanted two dims", name_of(cell), text(weights.input.type()), text(weights.hidden.type())));
  if (weights.projection && (cell != Cell::Lstm || weights.projection->rank() != 2))
    fail(builder, fmt::format("{}: found the projection {}, which an lstm alone has, with two dims", name_of(cell), text(weights.projection->type())));
}

}  // namespace

int64_t gates(Cell cell) {
  switch (cell) {
    case Cell::Lstm: return 4;
    case Cell::Gru: return 3;
    case Cell::Tanh:
    case Cell::Relu: return 1;
  }
  throw InternalError("recurrent: unknown cell");
}
int64_t states(Cell cell) { return cell == Cell::Lstm ? 2 : 1; }

RecurrentResult recurrent_layer(At at, Cell cell, const std::vector<Value>& starts, const RecurrentWeights& given, bool reverse) {
  const PlaceScope place(at);
  check_layer(at.value, cell, starts, given);
  const std::optional<DType> narrow = product_dtype(at.value);
  const Value x = cast(at.value, narrow);
  RecurrentWeights weights{cast(given.input, narrow), cast(given.hidden, narrow), {}, {}};
  if (given.input_bias) weights.input_bias = cast(*given.input_bias, narrow);
  if (given.hidden_bias) weights.hidden_bias = cast(*given.hidden_bias, narrow);
  if (given.projection) weights.projection = cast(*given.projection, narrow);
  Builder& outer = *x.builder;
  Module& module = outer.module();
  // What does not depend on the state is multiplied for all steps at once.
  const Value from_input = gate_product(x, weights.input, weights.input_bias);

  Loop loop;
  loop.body = module.add_graph(name_of(cell));
  Builder body(module, loop.body);
  body.set_place(outer.place());
  body.set_scope(outer.scope());
  std::vector<Value> inner_states;
  for (const Value& state : starts) inner_states.push_back(body.input(state.type()));
  TensorType slice_type = from_input.type();
  slice_type.shape.erase(slice_type.shape.begin());
  const Value inner_input = body.input(slice_type);
  RecurrentWeights inner{weights.input, body.input(weights.hidden.type()), {}, {}};
  if (weights.hidden_bias) inner.hidden_bias = body.input(weights.hidden_bias->type());
  if (weights.projection) inner.projection = body.input(weights.projection->type());
  const std::vector<Value> next = cell_step(cell, inner_input, inner_states, inner, narrow);
  for (size_t i = 0; i < next.size(); ++i) body.output(narrow ? convert(next[i], starts[i].dtype(), false) : next[i]);
  // A GRU's state is mixed with the one before, and so as wide; those of the others come from a product.
  const std::optional<DType> result = cell == Cell::Gru ? std::nullopt : narrow;
  body.output(cast(next[0], result));
  loop.body = unite_graph(module, loop.body);

  loop.trip_count = x.dim(0);
  loop.symbol = iteration_symbol(module);
  loop.carried = static_cast<int64_t>(starts.size());
  loop.scanned = 1;
  loop.reverse = reverse;
  std::vector<Value> arguments = starts;
  arguments.push_back(from_input);
  arguments.push_back(weights.hidden);
  if (weights.hidden_bias) arguments.push_back(*weights.hidden_bias);
  if (weights.projection) arguments.push_back(*weights.projection);
  const std::vector<Value> results = outer.emit(loop, arguments);
  RecurrentResult found{results.back(), {results.begin(), results.end() - 1}};
  for (Value& state : found.states) state = cast(state, result);
  return found;
}

RecurrentResult recurrent_stack(At at, Cell cell, const std::vector<Value>& starts, const std::vector<RecurrentWeights>& weights,
                                const RecurrentOptions& options) {
  const PlaceScope place(at);
  Builder& builder = *at.value.builder;
  const size_t directions = options.bidirectional ? 2 : 1, layers = weights.size() / directions;
  if (weights.empty() || weights.size() % directions != 0) fail(builder, fmt::format("{}: found {} sets of weights", name_of(cell), weights.size()));
  if (static_cast<int64_t>(starts.size()) != states(cell))
    fail(builder, fmt::format("{}: found {} states, wanted {}", name_of(cell), starts.size(), states(cell)));
  if (options.dropout != 0 && !options.key) fail(builder, fmt::format("{}: dropout needs a key", name_of(cell)));
  Value x = at.value;
  std::vector<std::vector<Value>> finals(starts.size());
  for (size_t layer = 0; layer < layers; ++layer) {
    std::vector<Value> outputs;
    for (size_t direction = 0; direction < directions; ++direction) {
      const size_t set = layer * directions + direction;
      std::vector<Value> from;
      for (const Value& start : starts) from.push_back(select(start, 0, static_cast<int64_t>(set)));
      const RecurrentResult found = recurrent_layer(x, cell, from, weights[set], direction == 1);
      outputs.push_back(found.outputs);
      for (size_t i = 0; i < finals.size(); ++i) finals[i].push_back(unsqueeze(found.states[i], 0));
    }
    x = outputs.size() == 1 ? outputs[0] : concatenate(outputs, 2);
    if (options.dropout != 0 && layer + 1 < layers) x = dropout(x, options.dropout, fold_in(*options.key, static_cast<int64_t>(layer)));
  }
  RecurrentResult result{x, {}};
  for (const std::vector<Value>& all : finals) result.states.push_back(all.size() == 1 ? all[0] : concatenate(all, 0));
  return result;
}

}  // namespace stepgraph
