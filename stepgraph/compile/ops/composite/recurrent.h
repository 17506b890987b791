// SPDX-License-Identifier: Apache-2.0
// LSTM (Hochreiter, Schmidhuber, 1997), GRU (Cho et al., 2014) and simple recurrences as Loops over the sequence, whose length may be symbolic.
#pragma once
#include <optional>
#include <vector>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

enum class Cell : uint8_t { Lstm, Gru, Tanh, Relu };
int64_t gates(Cell cell);   ///< rows of the weights, in hidden sizes
int64_t states(Cell cell);  ///< Lstm: hidden and cell state; else one

/// PyTorch's layouts: input [gates * H, F], hidden [gates * H, H], biases [gates * H]; gates in order i, f, g, o (Lstm) or r, z, n (Gru).
struct RecurrentWeights {
  Value input, hidden;
  std::optional<Value> input_bias, hidden_bias;
  std::optional<Value> projection = {};  ///< [P, H], of an Lstm: its hidden state and output have P features, and `hidden` is [gates * H, P]
};
struct RecurrentResult {
  Value outputs;               ///< [T, B, H], or with both directions [T, B, 2H]
  std::vector<Value> states;   ///< after the last step: [B, H] each; of a stack [layers * directions, B, H]
};
/// x [T, B, F] through one layer in one direction, from states [B, H].
RecurrentResult recurrent_layer(At x, Cell cell, const std::vector<Value>& states, const RecurrentWeights& weights, bool reverse = false);

struct RecurrentOptions {
  bool bidirectional = false;
  double dropout = 0;  ///< between layers; needs a key, of which each layer gets one of its own
  std::optional<Value> key = {};
};
/// Layers on each other; weights[layer * directions + direction]. starts: states(cell) values [layers * directions, B, H].
RecurrentResult recurrent_stack(At x, Cell cell, const std::vector<Value>& starts, const std::vector<RecurrentWeights>& weights,
                                const RecurrentOptions& options = {});

}  // namespace stepgraph
