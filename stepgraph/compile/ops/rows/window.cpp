// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/rows/window.h"

#include <fmt/core.h>

#include "stepgraph/compile/ops/rows/checks.h"

namespace stepgraph {

void check_window(std::string_view op, const Window& window, size_t dims) {
  const auto check = [&](std::string_view what, const std::vector<int64_t>& values, int64_t least) {
    if (values.size() != dims) throw UserError(fmt::format("{}: {} {} for {} spatial dims", op, values.size(), what, dims));
    for (const int64_t value : values)
      if (value < least) throw UserError(fmt::format("{}: found {} among {}, wanted at least {}", op, value, what, least));
  };
  check("strides", window.strides, 1);
  check("low paddings", window.padding_low, 0);
  check("high paddings", window.padding_high, 0);
  check("dilations", window.dilation, 1);
}

Dim window_result(std::string_view op, const Window& window, size_t d, const TensorType& x, const Dim& size, const Module& module) {
  const Dim extent = (size - 1) * window.dilation[d] + 1;
  const Dim padded = x.shape[d + 2] + window.padding_low[d] + window.padding_high[d];
  if (module.symbols.less_or_equal(1, size) == Truth::False) throw UserError(fmt::format("{}: a window of size {} for {}", op, size.text(), text(x)));
  if (module.symbols.less_or_equal(extent, padded) == Truth::False)
    throw UserError(fmt::format("{}: a window of {} does not fit the padded size {} of {}{}", op, extent.text(), padded.text(), text(x),
                                ranges_of(module, {extent}, {padded})));
  return module.symbols.simplify(floordiv(padded - extent, window.strides[d]) + 1);
}

}  // namespace stepgraph
