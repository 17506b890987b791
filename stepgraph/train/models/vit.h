// SPDX-License-Identifier: Apache-2.0
// A vision transformer (Dosovitskiy et al., 2020): patches as tokens, a class token, an encoder with norms first. Names as in its PyTorch versions:
// vit.embeddings.cls_token, vit.encoder.layer.0.attention.attention.query.weight, classifier.weight.
#pragma once
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct VitOptions {
  int64_t classes = 1000, patch = 16, layers = 12, heads = 12, width = 768;
  int64_t inner = 0;  ///< of the feed-forward part; 0: 4 * width
  double dropout = 0;
};
/// images [batch, channels, height, width], sizes constant and multiples of the patch -> logits [batch, classes].
Value vit(Scope s, Value images, const VitOptions& options = {});

}  // namespace stepgraph
