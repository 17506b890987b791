// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/resampling_symbolic.h"

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/indexing.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/statistics.h"

namespace stepgraph {
namespace {

/// [1, n, 1, ...] with n at `dim`, so that it broadcasts with x.
Value along(const Value& values, const Value& x, int64_t dim) {
  Shape shape(static_cast<size_t>(x.rank()), Dim(1));
  shape[static_cast<size_t>(dim)] = values.dim(0);
  return reshape(values, shape);
}

struct Positions {
  Value low;   ///< F64, whole numbers
  Value part;  ///< from there to the source position, in [0, 1)
};
Positions source_positions(Builder& builder, const Dim& from, const Dim& to, ResizeKind kind, bool align_corners, double given_scale) {
  const Value i = iota(builder, DType::F64, {to}, 0), n = size_value(builder, DType::F64, from), m = size_value(builder, DType::F64, to);
  Value source = i;
  if (align_corners) {
    source = i * ((n - 1.0) / maximum(m - 1.0, scalar(builder, DType::F64, 1)));
  } else {
    const Value scale = given_scale > 0 ? scalar(builder, DType::F64, 1 / given_scale) : n / m;
    source = (i + 0.5) * scale - 0.5;
  }
  if (kind == ResizeKind::Linear) source = maximum(source, zeros_like(source));
  const Value low = floor(source);
  return {low, source - low};
}

/// PyTorch computes the positions of nearest neighbours in f32.
Value nearest_positions(Builder& builder, const Dim& from, const Dim& to, bool is_exact, double given_scale) {
  const Value i = iota(builder, DType::F32, {to}, 0);
  const Value scale =
      given_scale > 0 ? scalar(builder, DType::F32, 1 / given_scale) : size_value(builder, DType::F32, from) / size_value(builder, DType::F32, to);
  return convert(floor((is_exact ? i + 0.5 : i) * scale), DType::F64);
}

Value pick(const Value& x, int64_t dim, const Value& positions) {
  const Value last = size_value(*x.builder, DType::I64, x.dim(dim)) - 1.0;
  const Value place = convert(positions, DType::I64);
  return index_select(x, dim, minimum(maximum(place, zeros_like(place)), broadcast_to(last, place.shape())));
}

/// The cubic kernel with -0.75, near and far from its centre.
Value cubic_near(const Value& t) { return ((t * 1.25) - 2.25) * t * t + 1.0; }
Value cubic_far(const Value& t) { return ((t * -0.75 + 3.75) * t - 6.0) * t + 3.0; }

}  // namespace

Value resize_symbolic(const Value& x, int64_t dim, const Dim& to, ResizeKind kind, bool align_corners, double given_scale) {
  Builder& builder = *x.builder;
  const Dim from = x.dim(dim);
  if (kind == ResizeKind::Nearest || kind == ResizeKind::NearestExact)
    return pick(x, dim, nearest_positions(builder, from, to, kind == ResizeKind::NearestExact, given_scale));
  const Positions source = source_positions(builder, from, to, kind, align_corners, given_scale);
  const auto weighed = [&](double offset, const Value& weight) { return pick(x, dim, source.low + offset) * along(convert(weight, x.dtype()), x, dim); };
  const Value& t = source.part;
  if (kind == ResizeKind::Linear) return weighed(0, 1.0 - t) + weighed(1, t);
  return weighed(-1, cubic_far(t + 1.0)) + weighed(0, cubic_near(t)) + weighed(1, cubic_near(1.0 - t)) + weighed(2, cubic_far(2.0 - t));
}

Value adaptive_average_symbolic(const Value& x, int64_t dim, int64_t to) {
  const Dim from = x.dim(dim);
  std::vector<Value> windows;
  for (int64_t i = 0; i < to; ++i) windows.push_back(mean(slice(x, dim, floordiv(from * Dim(i), Dim(to)), ceildiv(from * Dim(i + 1), Dim(to))), {dim}, true));
  return windows.size() == 1 ? windows[0] : concatenate(windows, dim);
}

namespace {

/// The maximum of one window, and its place in the whole.
MaxPooled window_maximum(const Value& x, const std::vector<int64_t>& sizes, const std::vector<int64_t>& at) {
  Builder& builder = *x.builder;
  const int64_t first = x.rank() - static_cast<int64_t>(sizes.size());
  Value window = x;
  Shape starts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = first + static_cast<int64_t>(i);
    const Dim n = x.dim(dim);
    starts.push_back(floordiv(n * Dim(at[i]), Dim(sizes[i])));
    window = slice(window, dim, starts.back(), ceildiv(n * Dim(at[i] + 1), Dim(sizes[i])));
  }
  Shape flat(x.shape().begin(), x.shape().begin() + first);
  flat.push_back(element_count(Shape(window.shape().begin() + first, window.shape().end())));
  const Value elements = reshape(window, flat);
  Value place = argmax(elements, first, true), whole = zeros_like(place);
  MaxPooled found{gather(elements, first, place), place};
  Dim stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    const int64_t dim = first + static_cast<int64_t>(i);
    const Value width = size_value(builder, DType::I64, window.dim(dim)), rest = floor_divide(place, broadcast_to(width, place.shape()));
    whole = whole + (place - rest * width + size_value(builder, DType::I64, starts[i])) * size_value(builder, DType::I64, stride);
    place = rest;
    stride = stride * x.dim(dim);
  }
  found.indices = whole;
  return found;
}

}  // namespace

MaxPooled adaptive_max_symbolic(const Value& x, const std::vector<int64_t>& sizes) {
  const int64_t first = x.rank() - static_cast<int64_t>(sizes.size());
  std::vector<Value> values, indices;
  std::vector<int64_t> at(sizes.size(), 0);
  for (bool is_left = true; is_left;) {
    const MaxPooled found = window_maximum(x, sizes, at);
    values.push_back(found.values), indices.push_back(found.indices);
    size_t d = sizes.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    is_left = d > 0;
  }
  Shape shape(x.shape().begin(), x.shape().begin() + first);
  for (int64_t size : sizes) shape.emplace_back(size);
  const auto joined = [&](const std::vector<Value>& parts) { return reshape(parts.size() == 1 ? parts[0] : concatenate(parts, first), shape); };
  return {joined(values), joined(indices)};
}

}  // namespace stepgraph
