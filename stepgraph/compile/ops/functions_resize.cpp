// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions_resize.h"

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
  const Value scale = given_scale > 0 ? scalar(builder, DType::F32, 1 / given_scale) : size_value(builder, DType::F32, from) / size_value(builder, DType::F32, to);
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

}  // namespace stepgraph
