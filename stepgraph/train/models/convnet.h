// SPDX-License-Identifier: Apache-2.0
// A small convolutional network with batch norm for small images: two convolutions, pooling, a third, pooling, a linear layer.
#pragma once
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct ConvnetOptions {
  int64_t classes = 10;
  int64_t width = 16;  ///< channels of the first two convolutions; the third has twice as many
  double dropout = 0;  ///< before the last layer
};
/// images [batch, channels, height, width] of at least 4 x 4 -> logits [batch, classes]. Parameters conv1, bn1, conv2, bn2, conv3, bn3, fc.
Value convnet(Scope s, Value images, const ConvnetOptions& options = {});

}  // namespace stepgraph
