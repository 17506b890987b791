// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions_windows.h"

#include <algorithm>
#include <cmath>

#include "stepgraph/compile/ops/functions_place.h"

namespace stepgraph {
namespace {

int64_t constant_size(const Value& x, int64_t dim, const char* function) {
  if (!x.dim(dim).is_constant())
    fail(*x.builder, std::string(function) + ": dim " + std::to_string(dim) + " of " + text(x.type()) + " is symbolic, wanted a constant size");
  return x.dim(dim).constant();
}
Value size_as(const Value& x, int64_t dim, DType dtype) { return size_value(*x.builder, dtype, x.dim(dim)); }

// ---- windows

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

// ---- sampling

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

// ---- pooling and resampling

Value max_unpool(At x, Value indices, const Shape& sizes) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t lead = v.rank() - static_cast<int64_t>(sizes.size());
  if (lead < 0 || !(indices.shape() == v.shape())) fail(*v.builder, "max_unpool: found " + text(v.type()) + " and indices " + text(indices.type()));
  Shape from(v.shape().begin(), v.shape().begin() + lead), to = from, result = from;
  Dim inputs = 1;
  for (int64_t d = lead; d < v.rank(); ++d) inputs = inputs * v.dim(d);
  from.push_back(inputs);
  to.push_back(element_count(sizes));
  result.insert(result.end(), sizes.begin(), sizes.end());
  const Value values = reshape(v, from), index = reshape(indices, from), zeros = full(*v.builder, v.dtype(), to, 0);
  // The last of values with one index is seen, but each has the gradient of its place.
  const Value seen = stop_gradient(scatter(zeros, lead, index, values)), sums = scatter_add(zeros, lead, index, values);
  return reshape(seen + (sums - stop_gradient(sums)), result);
}

namespace {

double antialias_weight(ResizeKind kind, double x) {
  const double distance = std::fabs(x);
  if (kind == ResizeKind::Linear) return distance < 1 ? 1 - distance : 0;
  constexpr double a = -0.5;
  if (distance < 1) return ((a + 2) * distance - (a + 3)) * distance * distance + 1;
  if (distance < 2) return ((distance - 5) * distance + 8) * distance * a - 4 * a;
  return 0;
}
Literal antialias_matrix(ResizeKind kind, int64_t from, int64_t to, bool align_corners, double given) {
  Literal matrix(DType::F64, {to, from});
  double scale = given > 0 ? 1 / given : static_cast<double>(from) / static_cast<double>(to);
  if (align_corners) scale = to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0;
  const double reach = (kind == ResizeKind::Linear ? 1 : 2) * std::max(scale, 1.0), shrink = 1 / std::max(scale, 1.0);
  for (int64_t i = 0; i < to; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - reach + 0.5), 0),
                  end = std::min<int64_t>(static_cast<int64_t>(center + reach + 0.5), from);
    double total = 0;
    for (int64_t j = first; j < end; ++j) total += antialias_weight(kind, (static_cast<double>(j) - center + 0.5) * shrink);
    for (int64_t j = first; j < end; ++j)
      matrix.set(i * from + j, antialias_weight(kind, (static_cast<double>(j) - center + 0.5) * shrink) / (total != 0 ? total : 1));
  }
  return matrix;
}

}  // namespace

Value resize_antialiased(At x, ResizeKind kind, const Shape& sizes, bool align_corners, const std::vector<double>& scales) {
  const PlaceScope place(x);
  Value v = x.value;
  if (static_cast<int64_t>(sizes.size()) != v.rank() - 2) fail(*v.builder, "resize: found " + std::to_string(sizes.size()) + " sizes for " + text(v.type()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = 2 + static_cast<int64_t>(i), from = constant_size(v, dim, "resize");
    if (!sizes[i].is_constant()) fail(*v.builder, "resize: to the symbolic size " + sizes[i].text() + ", wanted a constant one");
    const Literal matrix = antialias_matrix(kind, from, sizes[i].constant(), align_corners, scales.empty() ? 0 : scales[i]);
    MatMul product;
    product.lhs_contract = {dim};
    product.rhs_contract = {1};
    Value wide = dot_general(v, constant(*v.builder, matrix.converted(v.dtype())), product);  // the new dim comes last
    Dims order;
    for (int64_t d = 0; d + 1 < v.rank(); ++d) order.push_back(d);
    order.insert(order.begin() + dim, v.rank() - 1);
    v = permute(wide, order);
  }
  return v;
}

MaxPooled adaptive_max_pool_uneven(At x, const std::vector<int64_t>& sizes) {
  const PlaceScope place(x);
  const Value v = x.value;
  const int64_t rank = static_cast<int64_t>(sizes.size());
  // For each output the linear positions of its window, padded by repeats of the first one, in row-major order.
  std::vector<std::vector<int64_t>> windows{{0}};
  Shape shape(v.shape().begin(), v.shape().end() - rank), flat = shape;
  Dim elements = 1;
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t n = constant_size(v, v.rank() - rank + d, "adaptive_max_pool"), m = sizes[static_cast<size_t>(d)];
    if (m <= 0 || n <= 0) fail(*v.builder, "adaptive_max_pool: from " + std::to_string(n) + " to " + std::to_string(m) + " elements");
    std::vector<std::vector<int64_t>> finer;
    for (const auto& window : windows)
      for (int64_t i = 0; i < m; ++i) {
        std::vector<int64_t> joined;
        for (int64_t at : window)
          for (int64_t j = i * n / m; j < ((i + 1) * n + m - 1) / m; ++j) joined.push_back(at * n + j);
        finer.push_back(std::move(joined));
      }
    windows = std::move(finer);
    elements = elements * n;
    shape.emplace_back(m);
  }
  size_t longest = 0;
  for (const auto& window : windows) longest = std::max(longest, window.size());
  std::vector<int64_t> places;
  for (auto& window : windows) {
    window.resize(longest, window[0]);
    places.insert(places.end(), window.begin(), window.end());
  }
  flat.push_back(elements);
  const int64_t last = static_cast<int64_t>(flat.size()) - 1;
  const Value place_table =
      constant(*v.builder, Literal::from_integers(DType::I64, {static_cast<int64_t>(windows.size()), static_cast<int64_t>(longest)}, places));
  const Value candidates = index_select(reshape(v, flat), last, place_table);  // [..., outputs, window]
  const Value best = argmax(candidates, last + 1, true);
  const Value index = gather(broadcast_to(place_table, candidates.shape()), last + 1, best);
  return {reshape(gather(candidates, last + 1, best), shape), reshape(index, shape)};
}

}  // namespace stepgraph
