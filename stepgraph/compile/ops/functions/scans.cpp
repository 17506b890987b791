// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/scans.h"

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/statistics.h"

namespace stepgraph {

Value shifted(const Value& x, int64_t dim, bool reverse, double fill) {
  Shape low(x.shape().size(), Dim(0)), high = low;
  (reverse ? high : low)[static_cast<size_t>(dim)] = 1;
  const Dim& size = x.dim(dim);
  const Value padded = pad(x, low, high, fill);
  return reverse ? slice(padded, dim, 1, size + 1) : slice(padded, dim, 0, size);
}

Value running_position(const Value& x, const Value& running, int64_t dim) {
  const Value place = iota(*x.builder, DType::I64, x.shape(), dim);
  const Value taken = is_floating(x.dtype()) ? logical_or(equal(x, running), is_nan(x)) : equal(x, running);
  return x.builder->emit_one(Cumulative{CumulativeKind::Max, dim, false}, {where(taken, place, zeros_like(place))});
}

Value product_of_others(const Value& x, int64_t dim) {
  return cumprod(shifted(x, dim, false, 1), dim) * cumprod(shifted(x, dim, true, 1), dim, true);
}

Value linear_recurrence(Value a, Value b, int64_t dim) {
  // (a, b)[k] maps s[k + reach] to s[k]; two maps in a row are one map that reaches twice as far. Beyond the end stands the map to 0.
  const Dim size = b.dim(dim);
  const int64_t most = b.builder->module().symbols.bounds(size).maximum;
  for (int64_t reach = 1; reach < most; reach *= 2) {
    const Dim step = min(size, Dim(reach));
    Shape low(b.shape().size(), Dim(0)), high = low;
    high[static_cast<size_t>(dim)] = step;
    const auto ahead = [&](const Value& value) { return pad(slice(value, dim, step, size), low, high, 0); };
    b = b + a * ahead(b);
    if (reach > (most - 1) / 2) break;
    a = a * ahead(a);
  }
  return b;
}

}  // namespace stepgraph
