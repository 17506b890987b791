// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/convnet.h"

#include <string>

namespace stepgraph {
namespace {

/// Convolution, batch norm, relu. The norm's bias makes one of the convolution idle.
Value unit(Scope s, int64_t index, Value x, int64_t out) {
  ConvOptions options;
  options.kernel = {3};
  options.padding = {1};
  options.bias = false;
  options.weight_start = initialize::kaiming_normal(9 * out);
  const std::string number = std::to_string(index);
  return relu(batch_norm(s / ("bn" + number), conv(s / ("conv" + number), x, out, options)));
}

Value halved(Value x) {
  PoolOptions pool;
  pool.size = {2, 2};
  return max_pool(x, pool);
}

}  // namespace

Value convnet(Scope s, Value images, const ConvnetOptions& options) {
  Value x = unit(s, 1, images, options.width);
  x = halved(unit(s, 2, x, options.width));
  x = halved(unit(s, 3, x, 2 * options.width));
  x = dropout(s, flatten(x, 1, -1), options.dropout);
  return linear(s / "fc", x, options.classes);
}

}  // namespace stepgraph
