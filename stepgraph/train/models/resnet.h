// SPDX-License-Identifier: Apache-2.0
// Residual networks (He et al., 2015) with torchvision's names: conv1, bn1, layer1.0.conv1, layer2.0.downsample.0, fc.
#pragma once
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct ResnetOptions {
  int64_t depth = 18;       ///< 18, 34 (two 3x3 convolutions a block); 50, 101, 152 (bottlenecks, the stride in the 3x3 convolution)
  int64_t classes = 1000;
  int64_t width = 64;       ///< channels of the first stage
  std::vector<int64_t> blocks = {};  ///< of each of the 4 stages; empty: as the depth says, which else tells only the kind of block
  bool small_images = false;  ///< a 3x3 stem without stride and pooling, for images of about 32 x 32
};
/// images [batch, channels, height, width] -> logits [batch, classes].
Value resnet(Scope s, Value images, const ResnetOptions& options = {});

}  // namespace stepgraph
