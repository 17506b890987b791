// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/convnext.h"

#include <fmt/core.h>

namespace stepgraph {
namespace {

Initializer convnext_start() { return initialize::normal(0, 0.02); }

Value convnext_norm(Scope s, Value x) {
  LayerNormOptions options;
  options.epsilon = 1e-6;
  return layer_norm(s, x, options);
}
/// Over the channels of [batch, channels, height, width].
Value norm_channels(Scope s, Value x) { return permute(convnext_norm(s, permute(x, {0, 2, 3, 1})), {0, 3, 1, 2}); }

Value convnext_dense(Scope s, Value x, int64_t out) {
  LinearOptions options;
  options.weight_start = convnext_start();
  options.bias_start = initialize::zeros();
  return linear(s, x, out, options);
}

Value patches(Scope s, Value x, int64_t out, int64_t size) {
  ConvOptions options;
  options.kernel = options.stride = {size};
  options.weight_start = convnext_start();
  options.bias_start = initialize::zeros();
  return conv(s, x, out, options);
}

Value convnext_block(Scope s, Value x, int64_t width) {
  const Scope inner = s / "block";
  ConvOptions depthwise;
  depthwise.kernel = {7};
  depthwise.padding = {3};
  depthwise.groups = width;
  depthwise.weight_start = convnext_start();
  depthwise.bias_start = initialize::zeros();
  Value y = permute(conv(inner / int64_t{0}, x, width, depthwise), {0, 2, 3, 1});
  y = convnext_dense(inner / 3, convnext_norm(inner / 2, y), 4 * width);
  y = permute(convnext_dense(inner / 5, gelu(y), width), {0, 3, 1, 2});
  return x + y * s.parameter("layer_scale", {width, 1, 1}, initialize::constant(1e-6));
}

}  // namespace

Value convnext(Scope s, Value images, const ConvnextOptions& options) {
  if (options.blocks.empty()) throw UserError("convnext: blocks is empty, wanted a number for each stage");
  const Scope features = s / "features";
  int64_t width = options.width, index = 0;
  Value x = images;
  for (size_t stage = 0; stage < options.blocks.size(); ++stage) {
    const Scope before = features / index++;
    if (stage == 0) {
      x = norm_channels(before / 1, patches(before / int64_t{0}, x, width, 4));
    } else {
      width *= 2;
      x = patches(before / 1, norm_channels(before / int64_t{0}, x), width, 2);
    }
    x = repeat(features / index++, options.blocks[stage], x, [&](Scope layer, Value v) { return convnext_block(layer, v, width); });
  }
  const Scope head = s / "classifier";
  // torchvision pools first and norms the single position.
  return convnext_dense(head / 2, convnext_norm(head / int64_t{0}, mean(x, {2, 3})), options.classes);
}

}  // namespace stepgraph
