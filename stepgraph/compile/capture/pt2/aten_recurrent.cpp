// SPDX-License-Identifier: Apache-2.0
// LSTM, GRU and simple recurrences. Weights in PyTorch's order: ih, hh, bias ih, bias hh (and an LSTM's projection) for each layer and direction.
#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/recurrent.h"

namespace stepgraph::pt2 {
namespace {

void recurrent(OperatorCall& call, Cell cell) {
  const bool has_biases = call.boolean("has_biases"), bidirectional = call.boolean("bidirectional", false), batch_first = call.boolean("batch_first", false);
  const int64_t layers = call.integer("num_layers");
  const double dropout_rate = call.training() && call.boolean("train", false) ? call.real("dropout", 0) : 0;
  const std::vector<Value> parameters = call.tensors("params");
  const std::vector<Value> starts = cell == Cell::Lstm ? call.tensors("hx") : std::vector<Value>{call.tensor("hx")};
  const int64_t directions = bidirectional ? 2 : 1, plain = has_biases ? 4 : 2;
  const auto count = static_cast<int64_t>(parameters.size());
  const bool projects = cell == Cell::Lstm && count == layers * directions * (plain + 1);
  const int64_t per_layer = projects ? plain + 1 : plain;
  if (count != layers * directions * per_layer) call.fail("found " + std::to_string(count) + " weights, wanted " + std::to_string(layers * directions * plain));
  Value x = call.tensor("input");
  if (x.rank() != 3) call.fail("found an input of " + std::to_string(x.rank()) + " dims, wanted 3");
  if (batch_first) x = transpose(x, 0, 1);
  std::vector<RecurrentWeights> weights;
  for (size_t first = 0; first < parameters.size(); first += static_cast<size_t>(per_layer)) {
    weights.push_back({parameters[first], parameters[first + 1], {}, {}});
    if (has_biases) weights.back().input_bias = parameters[first + 2], weights.back().hidden_bias = parameters[first + 3];
    if (projects) weights.back().projection = parameters[first + static_cast<size_t>(plain)];
  }
  RecurrentOptions options;
  options.bidirectional = bidirectional;
  options.dropout = dropout_rate;
  if (dropout_rate > 0) options.key = call.key();
  const RecurrentResult found = recurrent_stack(x, cell, starts, weights, options);
  call.result(batch_first ? transpose(found.outputs, 0, 1) : found.outputs);
  for (const Value& state : found.states) call.result(state);
}
void lstm_row(OperatorCall& call) { recurrent(call, Cell::Lstm); }
void gru_row(OperatorCall& call) { recurrent(call, Cell::Gru); }
void rnn_tanh_row(OperatorCall& call) { recurrent(call, Cell::Tanh); }
void rnn_relu_row(OperatorCall& call) { recurrent(call, Cell::Relu); }

}  // namespace

std::vector<NamedRow> recurrent_rows() {
  return {{"lstm.input", lstm_row}, {"gru.input", gru_row}, {"rnn_tanh.input", rnn_tanh_row}, {"rnn_relu.input", rnn_relu_row}};
}

}  // namespace stepgraph::pt2
