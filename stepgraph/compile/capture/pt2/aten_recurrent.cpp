// SPDX-License-Identifier: Apache-2.0
// LSTM, GRU and simple recurrences as Loops over the sequence, whose length may be symbolic. Weights in PyTorch's order: ih, hh, bias ih, bias hh for each layer and
// direction.
#include <cmath>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/activations.h"

namespace stepgraph::pt2 {
namespace {

enum class Cell : uint8_t { Lstm, Gru, Tanh, Relu };

struct Weights {
  Value input, hidden;
  std::optional<Value> input_bias, hidden_bias;
};

/// One step: gates from the input (already multiplied), states, hidden weight and bias -> new states; the first is the output.
std::vector<Value> cell_step(Cell cell, const Value& from_input, const std::vector<Value>& states, const Value& hidden_weight, const std::optional<Value>& hidden_bias) {
  Value from_hidden = matmul(states[0], permute(hidden_weight, {1, 0}));
  if (hidden_bias) from_hidden = from_hidden + *hidden_bias;
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
  return {sigmoid(g[3]) * tanh(c), c};
}

/// x [T, B, F] in one direction -> outputs [T, B, H] and final states.
std::pair<Value, std::vector<Value>> run_layer(Call& call, Cell cell, const Value& x, const std::vector<Value>& states, const Weights& weights, bool reverse) {
  Builder& outer = call.builder();
  Module& module = outer.module();
  Value from_input = matmul(x, permute(weights.input, {1, 0}));
  if (weights.input_bias) from_input = from_input + *weights.input_bias;

  const GraphId body_id = module.add_graph(call.node().name + (reverse ? "_step_reverse" : "_step"));
  Builder body(module, body_id);
  body.set_place(outer.place());
  std::vector<Value> inner_states;
  for (const Value& state : states) inner_states.push_back(body.input(state.type()));
  TensorType slice_type = from_input.type();
  slice_type.shape.erase(slice_type.shape.begin());
  const Value inner_input = body.input(slice_type);
  const Value hidden_weight = body.input(weights.hidden.type());
  std::optional<Value> hidden_bias;
  if (weights.hidden_bias) hidden_bias = body.input(weights.hidden_bias->type());
  const std::vector<Value> next = cell_step(cell, inner_input, inner_states, hidden_weight, hidden_bias);
  for (const Value& state : next) body.output(state);
  body.output(next[0]);

  Loop loop;
  loop.body = body_id;
  loop.site = module.next_site++;
  loop.trip_count = x.dim(0);
  loop.symbol = call.node().name + "_step" + std::to_string(loop.site);
  module.symbols.declare({loop.symbol, SymbolKind::Iteration, 0, INT64_MAX, 1, {}});
  loop.carried = static_cast<int64_t>(states.size());
  loop.scanned = 1;
  loop.reverse = reverse;
  std::vector<Value> arguments = states;
  arguments.push_back(from_input);
  arguments.push_back(weights.hidden);
  if (weights.hidden_bias) arguments.push_back(*weights.hidden_bias);
  const std::vector<Value> results = outer.emit(loop, arguments);
  return {results.back(), {results.begin(), results.end() - 1}};
}

/// State `index` of [layers * directions, B, H].
Value initial_state(const Value& states, int64_t index) { return select(states, 0, index); }

void recurrent(Call& call, Cell cell) {
  const bool has_biases = call.boolean("has_biases"), bidirectional = call.boolean("bidirectional", false), batch_first = call.boolean("batch_first", false);
  const int64_t layers = call.integer("num_layers");
  const double dropout_rate = call.training() && call.boolean("train", false) ? call.real("dropout", 0) : 0;
  const std::vector<Value> parameters = call.tensors("params");
  const std::vector<Value> starts = cell == Cell::Lstm ? call.tensors("hx") : std::vector<Value>{call.tensor("hx")};
  const int64_t directions = bidirectional ? 2 : 1, per_layer = has_biases ? 4 : 2;
  if (static_cast<int64_t>(parameters.size()) != layers * directions * per_layer) call.fail("found " + std::to_string(parameters.size()) + " weights; projections are not supported");
  Value x = call.tensor("input");
  if (x.rank() != 3) call.fail("found an input of " + std::to_string(x.rank()) + " dims, wanted 3");
  if (batch_first) x = transpose(x, 0, 1);
  std::vector<std::vector<Value>> finals(starts.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Value> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t place = layer * directions + direction;
      const size_t first = static_cast<size_t>(place * per_layer);
      Weights weights{parameters[first], parameters[first + 1], {}, {}};
      if (has_biases) weights.input_bias = parameters[first + 2], weights.hidden_bias = parameters[first + 3];
      std::vector<Value> states;
      for (const Value& start : starts) states.push_back(initial_state(start, place));
      const auto [output, last] = run_layer(call, cell, x, states, weights, direction == 1);
      outputs.push_back(output);
      for (size_t i = 0; i < last.size(); ++i) finals[i].push_back(unsqueeze(last[i], 0));
    }
    x = outputs.size() == 1 ? outputs[0] : concatenate(outputs, 2);
    if (dropout_rate > 0 && layer + 1 < layers) x = dropout(x, dropout_rate, call.seed(), call.step());
  }
  call.result(batch_first ? transpose(x, 0, 1) : x);
  for (const std::vector<Value>& states : finals) call.result(states.size() == 1 ? states[0] : concatenate(states, 0));
}
void lstm_row(Call& call) { recurrent(call, Cell::Lstm); }
void gru_row(Call& call) { recurrent(call, Cell::Gru); }
void rnn_tanh_row(Call& call) { recurrent(call, Cell::Tanh); }
void rnn_relu_row(Call& call) { recurrent(call, Cell::Relu); }

}  // namespace

std::vector<NamedRow> recurrent_rows() {
  return {{"lstm.input", lstm_row}, {"gru.input", gru_row}, {"rnn_tanh.input", rnn_tanh_row}, {"rnn_relu.input", rnn_relu_row}};
}

}  // namespace stepgraph::pt2
