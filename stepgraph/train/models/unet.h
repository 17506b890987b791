// SPDX-License-Identifier: Apache-2.0
// U-Net (Ronneberger et al., 2015) with padding and batch norm: a class for each pixel. Names as in its common PyTorch version: inc.double_conv.0,
// down1.maxpool_conv.1.double_conv.0, up1.up, up1.conv.double_conv.0, outc.conv.
#pragma once
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct UnetOptions {
  int64_t classes = 2;
  int64_t width = 64;  ///< channels of the first convolution; each level has twice as many
  int64_t levels = 4;  ///< times that the image is halved
};
/// images [batch, channels, height, width], sizes constant and multiples of 2^levels -> logits [batch, classes, height, width].
Value unet(Scope s, Value images, const UnetOptions& options = {});

}  // namespace stepgraph
