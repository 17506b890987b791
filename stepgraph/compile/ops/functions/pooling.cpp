// SPDX-License-Identifier: Apache-2.0
// Pooling with ceil_mode, adaptive pooling, and what undoes a pool.
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
#include "stepgraph/compile/ops/functions/windows.h"

namespace stepgraph {
namespace {

std::vector<int64_t> for_all_dims(const std::vector<int64_t>& values, int64_t spatial, int64_t otherwise, const Builder& builder) {
  if (values.empty()) return std::vector<int64_t>(static_cast<size_t>(spatial), otherwise);
  if (values.size() == 1) return std::vector<int64_t>(static_cast<size_t>(spatial), values[0]);
  if (static_cast<int64_t>(values.size()) != spatial) fail(builder, "pool: found " + std::to_string(values.size()) + " numbers for " + std::to_string(spatial) + " spatial dims");
  return values;
}

struct PoolGeometry {
  std::vector<int64_t> size;
  Window window;
  bool has_extra = false;  ///< ceil_mode reaches behind the padding
  Shape extra;             ///< by how much, where a size is symbolic: not in the window
};

/// How far the last window of ceil_mode reaches behind n elements with padding on both sides: it starts inside the tensor or its left padding.
Dim ceil_extra(const Dim& n, int64_t pad, int64_t stride, int64_t reach) {
  const Dim span = n + 2 * pad - reach, last = min(ceildiv(span, Dim(stride)), floordiv(n + pad - 1, Dim(stride)));
  return max(Dim(0), last * stride - span);
}

PoolGeometry geometry(const Value& x, const PoolOptions& options, bool ceil_mode) {
  const Builder& builder = *x.builder;
  const int64_t spatial = x.rank() - 2;
  if (spatial < 1) fail(builder, "pool: found " + text(x.type()) + ", wanted [batch, channels, spatial...]");
  PoolGeometry made;
  made.size = for_all_dims(options.size, spatial, 1, builder);
  made.window.strides = options.strides.empty() ? made.size : for_all_dims(options.strides, spatial, 1, builder);
  made.window.padding_low = made.window.padding_high = for_all_dims(options.padding, spatial, 0, builder);
  made.window.dilation = for_all_dims(options.dilation, spatial, 1, builder);
  if (!ceil_mode) return made;
  for (int64_t d = 0; d < spatial; ++d) {
    const size_t i = static_cast<size_t>(d);
    const int64_t reach = made.window.dilation[i] * (made.size[i] - 1) + 1;
    const Dim extra = builder.module().symbols.simplify(ceil_extra(x.dim(2 + d), made.window.padding_low[i], made.window.strides[i], reach));
    if (extra.is_constant())
      made.window.padding_high[i] += extra.constant();
    else
      made.extra.resize(static_cast<size_t>(spatial), Dim(0)), made.extra[i] = extra;
    made.has_extra |= !(extra == Dim(0));
  }
  return made;
}

/// With what ceil_mode adds behind symbolic sizes.
Value with_extra(const Value& x, const PoolGeometry& made, double value) {
  if (made.extra.empty()) return x;
  Shape low(x.shape().size(), Dim(0)), high = low;
  std::copy(made.extra.begin(), made.extra.end(), high.begin() + 2);
  return pad(x, low, high, value);
}
/// Linear places of elements of the padded tensor as places in x.
Value places_in(const Value& x, const Value& padded, Value place) {
  Value found = zeros_like(place);
  Dim stride = 1;
  for (int64_t d = x.rank(); d-- > 2; stride = stride * x.dim(d)) {
    const Value width = broadcast_to(size_value(*x.builder, DType::I64, padded.dim(d)), place.shape());
    found = found + remainder(place, width) * size_value(*x.builder, DType::I64, stride);
    place = floor_divide(place, width);
  }
  return found;
}

/// Average windows of adaptive pooling: output i covers floor(i n / m) to ceil((i + 1) n / m).
Literal adaptive_matrix(int64_t from, int64_t to) {
  Literal matrix(DType::F64, {to, from});
  for (int64_t i = 0; i < to; ++i) {
    const int64_t start = i * from / to, end = ((i + 1) * from + to - 1) / to;
    for (int64_t j = start; j < end; ++j) matrix.set(i * from + j, 1.0 / static_cast<double>(end - start));
  }
  return matrix;
}

}  // namespace

MaxPooled max_pool_with_indices(At x, PoolOptions options, bool ceil_mode) {
  const PlaceScope place(x);
  const Value v = x.value;
  const PoolGeometry made = geometry(v, options, ceil_mode);
  Pool pool;
  pool.kind = PoolKind::Max;
  pool.size = made.size;
  pool.window = made.window;
  if (!made.extra.empty() && !is_floating(v.dtype())) fail(*v.builder, "pool: ceil_mode over symbolic sizes wants floating numbers, found " + text(v.type()));
  const Value padded = with_extra(v, made, -std::numeric_limits<double>::infinity());
  const std::vector<Value> found = v.builder->emit(pool, {padded});
  const Value places = elements_of_windows(pool, found.at(1), padded.shape());
  return {found.at(0), made.extra.empty() ? places : places_in(v, padded, places)};
}

Value average_pool_mode(At x, PoolOptions options, bool ceil_mode, int64_t divisor) {
  const PlaceScope place(x);
  const Value v = x->rank() == 5 ? autocast("avg_pool3d", x.value) : x.value;
  const AutocastScope off(*v.builder, {});
  const PoolGeometry made = geometry(v, options, ceil_mode);
  Pool pool;
  pool.kind = PoolKind::Average;
  pool.size = made.size;
  pool.window = made.window;
  const bool counts_elements = !options.count_include_pad && divisor == 0;
  pool.count_include_pad = !counts_elements || !made.extra.empty();
  const Value average = v.builder->emit_one(pool, {with_extra(v, made, 0)});
  if (counts_elements && !made.extra.empty()) return average / v.builder->emit_one(pool, {with_extra(ones_like(v), made, 0)});
  if (counts_elements || (divisor == 0 && !made.has_extra)) return average;
  int64_t elements = 1;
  for (int64_t size : made.size) elements *= size;
  if (divisor != 0) return average * (static_cast<double>(elements) / static_cast<double>(divisor));
  // Windows are cut at the padded tensor's end: each is divided by what is left of it.
  Value result = average;
  for (int64_t d = 0; d < v.rank() - 2; ++d) {
    const size_t i = static_cast<size_t>(d);
    const Dim end = v.dim(2 + d) + options.padding[options.padding.size() == 1 ? 0 : i], count = average.dim(2 + d);
    const double size = static_cast<double>(made.size[i]);
    const Value start =
        iota(*v.builder, DType::F64, {count}, 0) * static_cast<double>(made.window.strides[i]) - static_cast<double>(made.window.padding_low[i]);
    const Value limit = minimum(start + size, broadcast_to(size_value(*v.builder, DType::F64, end), start.shape()));
    Shape shape(static_cast<size_t>(v.rank()), Dim(1));
    shape[static_cast<size_t>(2 + d)] = count;
    result = result * reshape(convert(size / (limit - start), v.dtype()), shape);
  }
  return result;
}

Value adaptive_average_pool(At x, const std::vector<int64_t>& sizes) {
  const PlaceScope place(x);
  Value v = x.value;
  const int64_t first = v.rank() - static_cast<int64_t>(sizes.size());
  if (std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size == 1; })) {
    Dims dims;
    for (int64_t d = first; d < v.rank(); ++d) dims.push_back(d);
    return mean(v, dims, true);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = first + static_cast<int64_t>(i);
    if (v.dim(dim) == Dim(sizes[i])) continue;
    if (sizes[i] == 1) {
      v = mean(v, {dim}, true);
      continue;
    }
    if (!v.dim(dim).is_constant()) {
      v = adaptive_average_symbolic(v, dim, sizes[i]);
      continue;
    }
    v = multiply_dim(v, dim, adaptive_matrix(v.dim(dim).constant(), sizes[i]));
  }
  return v;
}

MaxPooled adaptive_max_pool(At x, const std::vector<int64_t>& sizes) {
  const PlaceScope place(x);
  const Value v = x.value;
  PoolOptions options;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!v.dim(2 + static_cast<int64_t>(i)).is_constant() && std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0 && size <= 16; }))
      return adaptive_max_symbolic(v, sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Dim& size = v.dim(2 + static_cast<int64_t>(i));
    if (!size.is_constant() || sizes[i] <= 0 || size.constant() % sizes[i] != 0) return adaptive_max_pool_uneven(v, sizes);
    options.size.push_back(size.constant() / sizes[i]);
  }
  options.strides = options.size;
  return max_pool_with_indices(v, options, false);
}

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
