// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/resampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/indexing.h"
#include "stepgraph/compile/ops/functions/linear_algebra.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/functions/resampling_symbolic.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/statistics.h"

namespace stepgraph {
namespace {

/// How far apart source positions of neighbours are (PyTorch's area_pixel_compute_scale).
double pixel_scale(int64_t from, int64_t to, bool align_corners, double given) {
  if (align_corners) return to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0;
  return given > 0 ? 1 / given : static_cast<double>(from) / static_cast<double>(to);
}

double cubic_near(double x) { return ((-0.75 + 2) * x - (-0.75 + 3)) * x * x + 1; }
double cubic_far(double x) { return ((-0.75 * x - 5 * -0.75) * x + 8 * -0.75) * x - 4 * -0.75; }

Literal resize_matrix(ResizeKind kind, int64_t from, int64_t to, bool align_corners, double given_scale) {
  Literal matrix(DType::F64, {to, from});
  const double scale = pixel_scale(from, to, align_corners, given_scale);
  auto add = [&](int64_t i, int64_t j, double weight) {
    const int64_t place = i * from + std::clamp<int64_t>(j, 0, from - 1);
    matrix.set(place, matrix.at(place) + weight);
  };
  for (int64_t i = 0; i < to; ++i) {
    double source = align_corners ? scale * static_cast<double>(i) : scale * (static_cast<double>(i) + 0.5) - 0.5;
    if (kind == ResizeKind::Linear) source = std::max(source, 0.0);
    const double floor = std::floor(source), part = source - floor;
    const int64_t at = static_cast<int64_t>(floor);
    if (kind == ResizeKind::Linear) {
      add(i, at, 1 - part);
      add(i, at + 1, part);
    } else {
      add(i, at - 1, cubic_far(part + 1));
      add(i, at, cubic_near(part));
      add(i, at + 1, cubic_near(1 - part));
      add(i, at + 2, cubic_far(2 - part));
    }
  }
  return matrix;
}

Value nearest(const Value& x, int64_t dim, const Dim& to, bool exact, double given_scale) {
  const Dim from = x.dim(dim);
  if (from == to) return x;
  const auto factor = exact_quotient(to, from);
  if (factor && factor->is_constant()) {  // each element repeated
    Shape apart = x.shape(), wide, merged = x.shape();
    apart.insert(apart.begin() + dim + 1, Dim(1));
    wide = apart;
    wide[static_cast<size_t>(dim) + 1] = *factor;
    merged[static_cast<size_t>(dim)] = to;
    return reshape(broadcast_to(reshape(x, apart), wide), merged);
  }
  if (!from.is_constant() || !to.is_constant()) return resize_symbolic(x, dim, to, exact ? ResizeKind::NearestExact : ResizeKind::Nearest, false, given_scale);
  // PyTorch computes these positions in f32.
  const float scale = given_scale > 0 ? static_cast<float>(1.0 / given_scale) : static_cast<float>(from.constant()) / static_cast<float>(to.constant());
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < to.constant(); ++i) {
    const float source = exact ? (static_cast<float>(i) + 0.5f) * scale : static_cast<float>(i) * scale;
    positions.push_back(std::min<int64_t>(static_cast<int64_t>(std::floor(source)), from.constant() - 1));
  }
  return index_select(x, dim, constant(*x.builder, Literal::from_integers(DType::I64, {to.constant()}, positions)));
}

}  // namespace

Value resize(At x, ResizeKind kind, const Shape& sizes, bool align_corners, const std::vector<double>& scales) {
  const PlaceScope place(x);
  Value v = autocast("upsample_nearest1d", x.value);  // all kinds are on the same lists
  const AutocastScope off(*v.builder, {});
  if (static_cast<int64_t>(sizes.size()) != v.rank() - 2) fail(*v.builder, "resize: found " + std::to_string(sizes.size()) + " sizes for " + text(v.type()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = 2 + static_cast<int64_t>(i);
    const double scale = scales.empty() ? 0 : scales[i];
    if (kind == ResizeKind::Nearest || kind == ResizeKind::NearestExact) {
      v = nearest(v, dim, sizes[i], kind == ResizeKind::NearestExact, scale);
      continue;
    }
    if (v.dim(dim) == sizes[i]) continue;
    if (!v.dim(dim).is_constant() || !sizes[i].is_constant()) {
      v = resize_symbolic(v, dim, sizes[i], kind, align_corners, scale);
      continue;
    }
    v = multiply_dim(v, dim, resize_matrix(kind, v.dim(dim).constant(), sizes[i].constant(), align_corners, scale));
  }
  return v;
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

}  // namespace stepgraph
