// SPDX-License-Identifier: Apache-2.0
// A multi-layer perceptron on flattened inputs.
#pragma once
#include <vector>
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

enum class Activation : uint8_t { Relu, Gelu, Tanh, Silu };

struct MlpOptions {
  std::vector<int64_t> hidden = {128, 64};
  int64_t classes = 10;
  Activation activation = Activation::Relu;
  double dropout = 0;
};
/// x [batch, ...] -> logits [batch, classes]. Parameters layers.0.weight, layers.0.bias, ...
Value mlp(Scope s, Value x, const MlpOptions& options = {});

}  // namespace stepgraph
