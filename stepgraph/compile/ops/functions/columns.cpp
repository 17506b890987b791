// SPDX-License-Identifier: Apache-2.0
// Windows as columns, and back.
#include <algorithm>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/windows.h"

namespace stepgraph {
namespace {


void check_columns(const Value& x, const Columns& c, int64_t rank, const char* function) {
  if (x.rank() != rank) fail(*x.builder, std::string(function) + ": found " + text(x.type()) + ", wanted " + std::to_string(rank) + " dims");
  for (const auto* list : {&c.size, &c.strides, &c.padding, &c.dilation})
    if (list->size() != 2) fail(*x.builder, std::string(function) + ": found " + std::to_string(list->size()) + " numbers for two dims");
  for (size_t d = 0; d < 2; ++d)
    if (c.size[d] < 1 || c.strides[d] < 1 || c.dilation[d] < 1 || c.padding[d] < 0 || c.size[d] > 4096 || c.dilation[d] > 65536 || c.padding[d] > 65536)
      fail(*x.builder, std::string(function) + ": sizes, strides and dilation are at least 1, padding is at least 0");
}
/// Places of windows along dim d of an image of that size.
Dim positions(const Dim& size, const Columns& c, size_t d) {
  const Dim span = size + (2 * c.padding[d] - c.dilation[d] * (c.size[d] - 1) - 1);
  return exact_quotient(span, Dim(c.strides[d])).value_or(floordiv(span, Dim(c.strides[d]))) + 1;
}

}  // namespace

Value windows_to_columns(At x, const Columns& c) {
  const PlaceScope place(x);
  const Value v = x.value;
  check_columns(v, c, 4, "im2col");
  const Shape around{Dim(0), Dim(0), Dim(c.padding[0]), Dim(c.padding[1])};
  const Value padded = pad(v, around, around);
  const Dim rows = positions(v.dim(2), c, 0), columns = positions(v.dim(3), c, 1);
  std::vector<Value> parts;
  for (int64_t i = 0; i < c.size[0]; ++i) {
    const int64_t top = i * c.dilation[0];
    const Value band = slice(padded, 2, top, (rows - 1) * c.strides[0] + (top + 1), c.strides[0]);
    for (int64_t j = 0; j < c.size[1]; ++j) {
      const int64_t left = j * c.dilation[1];
      parts.push_back(unsqueeze(slice(band, 3, left, (columns - 1) * c.strides[1] + (left + 1), c.strides[1]), 2));
    }
  }
  return reshape(concatenate(parts, 2), {v.dim(0), v.dim(1) * (c.size[0] * c.size[1]), rows * columns});
}

Value columns_to_image(At x, const Shape& sizes, const Columns& c) {
  const PlaceScope place(x);
  const Value v = x.value;
  check_columns(v, c, 3, "col2im");
  const int64_t window = c.size[0] * c.size[1];
  const auto channels = exact_quotient(v.dim(1), Dim(window));
  if (sizes.size() != 2 || !channels) fail(*v.builder, "col2im: " + text(v.type()) + " holds no columns of " + std::to_string(window) + " elements");
  const Dim rows = positions(sizes[0], c, 0), columns = positions(sizes[1], c, 1);
  const Value apart = reshape(v, {v.dim(0), *channels, Dim(window), rows, columns});
  const Value zero = scalar(*v.builder, v.dtype(), 0);
  std::optional<Value> image;
  for (int64_t k = 0; k < window; ++k) {
    const Value part = select(apart, 2, k);
    Pad spread;
    spread.low = spread.high = Shape(4, Dim(0));
    spread.interior = {0, 0, c.strides[0] - 1, c.strides[1] - 1};
    for (size_t d = 0; d < 2; ++d) {
      const int64_t low = (d == 0 ? k / c.size[1] : k % c.size[1]) * c.dilation[d];
      spread.low[2 + d] = low;
      spread.high[2 + d] = sizes[d] + 2 * c.padding[d] - ((d == 0 ? rows : columns) - 1) * c.strides[d] - (low + 1);
    }
    const Value placed = v.builder->emit_one(spread, {part, zero});
    image = image ? *image + placed : placed;
  }
  const Value cut = slice(*image, 2, c.padding[0], sizes[0] + c.padding[0]);
  return slice(cut, 3, c.padding[1], sizes[1] + c.padding[1]);
}

}  // namespace stepgraph
