// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/encoder_layers.h"

namespace stepgraph {

Initializer encoder_start() { return initialize::normal(0, 0.02); }

Value encoder_dense(Scope s, Value x, int64_t out) {
  LinearOptions options;
  options.weight_start = encoder_start();
  options.bias_start = initialize::zeros();
  return linear(s, x, out, options);
}

Value encoder_norm(Scope s, Value x) {
  LayerNormOptions options;
  options.epsilon = 1e-12;
  return layer_norm(s, x, options);
}

}  // namespace stepgraph
