// SPDX-License-Identifier: Apache-2.0
// A language model of LSTM layers between an embedding and a decoder. Names as in PyTorch's example: encoder.weight, rnn.weight_ih_l0, decoder.weight.
#pragma once
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct LstmOptions {
  int64_t vocabulary = 256, layers = 2, width = 64;
  double dropout = 0;  ///< after the embedding, between layers, before the decoder
};
/// tokens (integer) [batch, T] -> logits [batch, T, vocabulary].
Value lstm_model(Scope s, Value tokens, const LstmOptions& options = {});

}  // namespace stepgraph
