// SPDX-License-Identifier: Apache-2.0
// Reading at positions that are values.
#include <algorithm>
#include <cmath>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/indexing.h"
#include "stepgraph/compile/ops/functions/linear_algebra.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/functions/resampling.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/statistics.h"

namespace stepgraph {
namespace {

Value size_as(const Value& x, int64_t dim, DType dtype) { return size_value(*x.builder, dtype, x.dim(dim)); }

}  // namespace

namespace {

/// Into [0, size - 1], with no gradient at the ends, as PyTorch's.
Value clipped(const Value& at, const Value& last) {
  const Value top = broadcast_to(last, at.shape());
  return where(less_equal(at, 0.0), zeros_like(at), where(greater_equal(at, top), top, at));
}
/// Mirrored at the ends of [low, low + span] until inside.
Value reflected(const Value& at, double low, const Value& span) {
  const Value wide = broadcast_to(span, at.shape());
  const Value away = abs(at - low), turns = stop_gradient(floor(away / where(equal(wide, 0.0), ones_like(wide), wide)));
  const Value rest = away - turns * wide;
  const Value even = equal(remainder(turns, full_like(turns, 2)), 0.0);
  return where(equal(wide, 0.0), zeros_like(at), where(even, rest + low, wide - rest + low));
}

struct Sampler {
  Value flat;                  ///< [N, C, elements]
  std::vector<Value> sizes;    ///< as scalars of the grid's dtype
  std::vector<Value> strides;  ///< of the spatial dims in `flat`, i64 scalars
  OutsideKind outside;
  bool align_corners;

  /// A position brought inside, unless zeros lie outside.
  Value inside(const Value& at, size_t d) const {
    const Value last = sizes[d] - 1.0;
    switch (outside) {
      case OutsideKind::Zeros: return at;
      case OutsideKind::Border: return clipped(at, last);
      case OutsideKind::Reflection: return clipped(align_corners ? reflected(at, 0, last) : reflected(at, -0.5, sizes[d]), last);
    }
    return at;
  }
  /// Elements at whole positions, one value for each spatial dim: [N, C, Q]; zero outside.
  Value read(const std::vector<Value>& at) const {
    std::optional<Value> index, valid;
    for (size_t d = 0; d < at.size(); ++d) {
      const Value last = broadcast_to(sizes[d] - 1.0, at[d].shape()), whole = stop_gradient(at[d]);
      const Value within = logical_and(greater_equal(whole, 0.0), less_equal(whole, last));
      const Value kept = where(within, whole, zeros_like(whole));
      const Value step = convert(kept, DType::I64) * strides[d];
      index = index ? *index + step : step;
      valid = valid ? logical_and(*valid, within) : within;
    }
    const Shape wanted{flat.dim(0), flat.dim(1), index->dim(1)};
    const Value found = gather(flat, 2, broadcast_to(unsqueeze(*index, 1), wanted));
    return where(broadcast_to(unsqueeze(*valid, 1), wanted), found, zeros_like(found));
  }
};

/// Weights of the four neighbours of a position whose distance to the second is t.
std::vector<Value> cubic_weights(const Value& t) {
  constexpr double a = -0.75;
  const auto near = [](const Value& x) { return ((a + 2) * x - (a + 3)) * x * x + 1.0; };
  const auto far = [](const Value& x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)};
}

Value sample_at(const Sampler& sampler, const std::vector<Value>& positions, SampleKind kind) {
  const size_t rank = positions.size();
  if (kind == SampleKind::Nearest) {
    std::vector<Value> at;
    for (size_t d = 0; d < rank; ++d) at.push_back(round(sampler.inside(positions[d], d)));
    return sampler.read(at);
  }
  const bool cubic = kind == SampleKind::Cubic;
  const int64_t taps = cubic ? 4 : 2;
  std::vector<std::vector<Value>> at(rank), weights(rank);
  for (size_t d = 0; d < rank; ++d) {
    const Value position = cubic ? positions[d] : sampler.inside(positions[d], d);
    const Value below = stop_gradient(floor(position)), part = position - below;
    weights[d] = cubic ? cubic_weights(part) : std::vector<Value>{1.0 - part, part};
    for (int64_t k = 0; k < taps; ++k) {
      const Value tap = below + static_cast<double>(cubic ? k - 1 : k);
      at[d].push_back(cubic ? sampler.inside(tap, d) : tap);
    }
  }
  std::optional<Value> total;
  int64_t count = 1;
  for (size_t d = 0; d < rank; ++d) count *= taps;
  for (int64_t corner = 0; corner < count; ++corner) {
    std::vector<Value> tap;
    std::optional<Value> weight;
    for (size_t d = 0; d < rank; ++d) {
      const auto k = static_cast<size_t>(corner >> (d * (cubic ? 2 : 1)) & (taps - 1));
      tap.push_back(at[d][k]);
      weight = weight ? *weight * weights[d][k] : weights[d][k];
    }
    const Value term = sampler.read(tap) * unsqueeze(*weight, 1);
    total = total ? *total + term : term;
  }
  return *total;
}

}  // namespace

Value grid_sample(At x, Value grid, SampleKind kind, OutsideKind outside, bool align_corners) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t rank = v.rank() - 2;
  if (rank < 1 || rank > 3 || grid.rank() != v.rank() || !(grid.dim(-1) == Dim(rank)) || grid.dtype() != v.dtype())
    fail(*v.builder, "grid_sample: found " + text(v.type()) + " and a grid " + text(grid.type()));
  Dim elements = 1, places = 1;
  for (int64_t d = 0; d < rank; ++d) elements = elements * v.dim(2 + d), places = places * grid.dim(1 + d);
  Sampler sampler{reshape(v, {v.dim(0), v.dim(1), elements}), {}, {}, outside, align_corners};
  std::vector<Value> positions;
  const Value flat_grid = reshape(grid, {grid.dim(0), places, Dim(rank)});
  for (int64_t d = 0; d < rank; ++d) {
    const Value size = size_as(v, 2 + d, grid.dtype()), at = select(flat_grid, 2, rank - 1 - d);
    sampler.sizes.push_back(size);
    Dim stride = 1;
    for (int64_t later = d + 1; later < rank; ++later) stride = stride * v.dim(2 + later);
    sampler.strides.push_back(size_value(*v.builder, DType::I64, stride));
    positions.push_back(align_corners ? (at + 1.0) / 2.0 * (size - 1.0) : ((at + 1.0) * size - 1.0) / 2.0);
  }
  Shape shape{v.dim(0), v.dim(1)};
  for (int64_t d = 0; d < rank; ++d) shape.push_back(grid.dim(1 + d));
  return reshape(sample_at(sampler, positions, kind), shape);
}

Value affine_grid(At theta, const Shape& sizes, bool align_corners) {
  const PlaceScope place(theta);
  const Value t = theta.value;
  Builder& builder = *t.builder;
  const int64_t rank = static_cast<int64_t>(sizes.size()) - 2;
  if (rank < 1 || t.rank() != 3 || !(t.dim(1) == Dim(rank)) || !(t.dim(2) == Dim(rank + 1)))
    fail(builder, "affine_grid: found " + text(t.type()) + " for an image of sizes " + text(sizes));
  const Shape spatial(sizes.begin() + 2, sizes.end());
  Shape column = spatial;
  column.emplace_back(1);
  std::vector<Value> base;  // the last spatial dim first, then ones
  for (int64_t d = rank - 1; d >= 0; --d) {
    const Value step = iota(builder, t.dtype(), column, d), size = size_value(builder, t.dtype(), spatial[static_cast<size_t>(d)]);
    if (!align_corners)
      base.push_back((step * 2.0 + 1.0) / size - 1.0);
    else
      base.push_back(spatial[static_cast<size_t>(d)] == Dim(1) ? zeros_like(step) : step * 2.0 / (size - 1.0) - 1.0);
  }
  base.push_back(full(builder, t.dtype(), column, 1));
  MatMul product;
  product.lhs_contract = {2};
  product.rhs_contract = {rank};
  const Value grid = dot_general(t, concatenate(base, rank), product);  // [N, rank, spatial...]
  Dims order{0};
  for (int64_t d = 0; d < rank; ++d) order.push_back(2 + d);
  order.push_back(1);
  return permute(grid, order);
}

}  // namespace stepgraph
