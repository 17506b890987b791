// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/resnet.h"

#include <array>

#include <fmt/core.h>

namespace stepgraph {
namespace {

struct Plan {
  std::array<int64_t, 4> blocks;
  bool bottleneck;
};

Plan plan_of(int64_t depth) {
  switch (depth) {
    case 18: return {{2, 2, 2, 2}, false};
    case 34: return {{3, 4, 6, 3}, false};
    case 50: return {{3, 4, 6, 3}, true};
    case 101: return {{3, 4, 23, 3}, true};
    case 152: return {{3, 8, 36, 3}, true};
  }
  throw UserError(fmt::format("resnet: depth is {}, wanted 18, 34, 50, 101 or 152", depth));
}

Value plain_conv(Scope s, Value x, int64_t out, int64_t kernel, int64_t stride) {
  ConvOptions options;
  options.kernel = {kernel};
  options.stride = {stride};
  options.padding = {kernel / 2};
  options.bias = false;
  options.weight_start = initialize::kaiming_normal(kernel * kernel * out);
  return conv(s, x, out, options);
}

/// width: of the block's inner convolutions; a bottleneck gives four times as many channels.
Value resnet_block(Scope s, Value x, int64_t width, int64_t stride, bool bottleneck) {
  const int64_t out = bottleneck ? 4 * width : width;
  Value y = plain_conv(s / "conv1", x, width, bottleneck ? 1 : 3, bottleneck ? 1 : stride);
  y = relu(batch_norm(s / "bn1", y));
  y = batch_norm(s / "bn2", plain_conv(s / "conv2", y, width, 3, bottleneck ? stride : 1));
  if (bottleneck) y = batch_norm(s / "bn3", plain_conv(s / "conv3", relu(y), out, 1, 1));
  Value shortcut = x;
  if (stride != 1 || x.dim(1) != Dim(out)) {
    const Scope down = s / "downsample";
    shortcut = batch_norm(down / 1, plain_conv(down / int64_t{0}, x, out, 1, stride));
  }
  return relu(y + shortcut);
}

}  // namespace

Value resnet(Scope s, Value images, const ResnetOptions& options) {
  Plan plan = plan_of(options.depth);
  if (!options.blocks.empty()) {
    if (options.blocks.size() != plan.blocks.size())
      throw UserError(fmt::format("resnet: blocks has {} numbers, wanted one for each of {} stages", options.blocks.size(), plan.blocks.size()));
    std::copy(options.blocks.begin(), options.blocks.end(), plan.blocks.begin());
  }
  Value x = plain_conv(s / "conv1", images, options.width, options.small_images ? 3 : 7, options.small_images ? 1 : 2);
  x = relu(batch_norm(s / "bn1", x));
  if (!options.small_images) {
    PoolOptions pool;
    pool.size = {3, 3};
    pool.strides = {2, 2};
    pool.padding = {1, 1};
    x = max_pool(x, pool);
  }
  int64_t width = options.width;
  for (size_t stage = 0; stage < plan.blocks.size(); ++stage) {
    const Scope layer = s / ("layer" + std::to_string(stage + 1));
    for (int64_t i = 0; i < plan.blocks[stage]; ++i) x = resnet_block(layer / i, x, width, i == 0 && stage > 0 ? 2 : 1, plan.bottleneck);
    width *= 2;
  }
  return linear(s / "fc", mean(x, {2, 3}), options.classes);
}

}  // namespace stepgraph
