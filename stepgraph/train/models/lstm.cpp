// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/lstm.h"

namespace stepgraph {

Value lstm_model(Scope s, Value tokens, const LstmOptions& options) {
  EmbeddingOptions words;
  words.start = initialize::uniform(-0.1, 0.1);
  Value x = dropout(s / "drop", embedding(s / "encoder", tokens, options.vocabulary, options.width, words), options.dropout);
  RecurrentLayerOptions layers;
  layers.hidden = options.width;
  layers.layers = options.layers;
  layers.dropout = options.dropout;
  x = dropout(s / "drop", lstm(s / "rnn", x, layers), options.dropout);
  LinearOptions decoder;
  decoder.weight_start = words.start;
  decoder.bias_start = initialize::zeros();
  return linear(s / "decoder", x, options.vocabulary, decoder);
}

}  // namespace stepgraph
