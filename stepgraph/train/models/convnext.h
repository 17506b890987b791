// SPDX-License-Identifier: Apache-2.0
// ConvNeXt (Liu et al., 2022) with torchvision's names: features.0.0, features.1.0.block.0, features.1.0.layer_scale, classifier.2. No stochastic depth.
#pragma once
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct ConvnextOptions {
  std::vector<int64_t> blocks = {3, 3, 9, 3};  ///< of each stage; the first sees quarters of the image, each further one half of that
  int64_t width = 96;                          ///< channels of the first stage; each further one has twice as many
  int64_t classes = 1000;
};
/// images [batch, channels, height, width] -> logits [batch, classes].
Value convnext(Scope s, Value images, const ConvnextOptions& options = {});

}  // namespace stepgraph
