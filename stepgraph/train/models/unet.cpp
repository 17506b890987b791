// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/unet.h"

#include <fmt/core.h>

namespace stepgraph {
namespace {

Value twice(Scope s, Value x, int64_t out) {
  const Scope d = s / "double_conv";
  ConvOptions options;
  options.padding = {1};
  options.bias = false;
  options.weight_start = initialize::kaiming_normal(9 * out);
  x = relu(batch_norm(d / 1, conv(d / int64_t{0}, x, out, options)));
  return relu(batch_norm(d / 4, conv(d / 3, x, out, options)));
}

}  // namespace

Value unet(Scope s, Value images, const UnetOptions& options) {
  if (options.levels < 0 || options.levels > 16) throw UserError(fmt::format("unet: levels is {}, wanted a number from 0 to 16", options.levels));
  for (int64_t d : {2, 3})
    if (!images.dim(d).is_constant() || images.dim(d).constant() % (int64_t{1} << options.levels) != 0)
      throw UserError(fmt::format("unet: images {} are no multiple of {}", text(images.type()), int64_t{1} << options.levels));
  std::vector<Value> skipped;
  int64_t width = options.width;
  Value x = twice(s / "inc", images, width);
  PoolOptions half;
  half.size = {2, 2};
  for (int64_t level = 1; level <= options.levels; ++level) {
    skipped.push_back(x);
    width *= 2;
    x = twice(s / fmt::format("down{}", level) / "maxpool_conv" / 1, max_pool(x, half), width);
  }
  ConvOptions stretch;
  stretch.kernel = stretch.stride = {2};
  for (int64_t level = 1; level <= options.levels; ++level) {
    const Scope up = s / fmt::format("up{}", level);
    width /= 2;
    const Value wide = conv_transpose(up / "up", x, width, stretch);
    x = twice(up / "conv", concatenate(std::vector<Value>{skipped.back(), wide}, 1), width);
    skipped.pop_back();
  }
  ConvOptions last;
  last.kernel = {1};
  return conv(s / "outc" / "conv", x, options.classes, last);
}

}  // namespace stepgraph
