// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rows.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/rows/window.h"

namespace stepgraph {
namespace {

std::string_view op_name(PoolKind kind) { return Pool::names[static_cast<size_t>(kind)]; }

/// The shape of the pooled result of x.
Shape pooled_shape(const Pool& op, const TensorType& x, const Module& module) {
  const std::string_view what = op_name(op.kind);
  if (x.rank() < 3) throw UserError(fmt::format("{}: found {}, wanted [batch, channels, spatial...] with a spatial dim", what, text(x)));
  check_window(what, op.window, x.rank() - 2);
  if (op.size.size() != x.rank() - 2) throw UserError(fmt::format("{}: a window of {} dims for {}", what, op.size.size(), text(x)));
  element_count(op.size);  // the divisor: positive numbers whose product does not overflow
  Shape shape = {x.shape[0], x.shape[1]};
  for (size_t d = 0; d < op.size.size(); ++d) {
    shape.push_back(window_result(what, op.window, d, x, op.size[d], module));
    const Dim extent = Dim(op.size[d] - 1) * op.window.dilation[d] + 1;
    const int64_t padding = std::max(op.window.padding_low[d], op.window.padding_high[d]);
    if (op.kind == PoolKind::Max && padding >= extent.constant())
      throw UserError(fmt::format("{}: a padding of {} leaves windows of {} without an element", what, padding, extent.text()));
  }
  return shape;
}

std::vector<TensorType> pool_types(const InferRequest& request) {
  const auto& op = std::get<Pool>(request.op);
  const TensorType& x = request.inputs[0];
  const std::string_view what = op_name(op.kind);
  switch (op.kind) {
    case PoolKind::Max: {
      if (x.dtype == DType::Bool) throw UserError(fmt::format("{}: found {}, wanted numbers", what, text(x)));
      const Shape shape = pooled_shape(op, x, request.module);
      return {{x.dtype, shape, {}}, {element_count(op.size) <= 256 ? DType::U8 : DType::I32, shape, {}}};
    }
    case PoolKind::Average: check_floating(what, x); return {{x.dtype, pooled_shape(op, x, request.module), {}}};
    case PoolKind::AverageGradient: {
      check_floating(what, x);
      check_sizes(what, op.shape, request.module);
      const TensorType result{x.dtype, op.shape, {}};
      const Shape wanted = pooled_shape(op, result, request.module);
      if (!same_shape(request.module, x.shape, wanted))
        throw UserError(fmt::format("{}: result gradient is {}, pooling gives {}{}", what, text(x), text(wanted), ranges_of(request.module, x.shape, wanted)));
      return {result};
    }
  }
  return {};
}

/// For a stretch of output positions of a plane: the elements of the plane that each window holds, and their places in the window.
struct WindowTable {
  int64_t first = 0;
  std::vector<size_t> ends;               // one for each position
  std::vector<int64_t> elements, places;  // ascending within a window
};

class Windows {
 public:
  Windows(const Pool& op, Sizes in, Sizes out) : op_(op), in_(std::move(in)), out_(std::move(out)) {}
  int64_t positions() const { return element_count(out_); }
  /// The table from `first` on, of bounded size.
  WindowTable table(int64_t first) const;

 private:
  struct Range {
    int64_t first, step, count, skipped;
  };
  Range range(size_t d, int64_t position) const;
  const Pool& op_;
  Sizes in_, out_;
};

Windows::Range Windows::range(size_t d, int64_t position) const {
  const int64_t dilation = op_.window.dilation[d], origin = position * op_.window.strides[d] - op_.window.padding_low[d];
  const int64_t skipped = origin < 0 ? -origin / dilation + (-origin % dilation > 0 ? 1 : 0) : 0;
  const int64_t start = origin + skipped * dilation;
  if (start >= in_[d] || skipped >= op_.size[d]) return {0, 1, 0, 0};
  return {start, dilation, std::min(op_.size[d] - skipped, (in_[d] - 1 - start) / dilation + 1), skipped};
}

WindowTable Windows::table(int64_t first) const {
  constexpr size_t limit = size_t{1} << 18;
  WindowTable table;
  table.first = first;
  const size_t dims = in_.size();
  for (int64_t position = first; position < positions() && table.elements.size() < limit; ++position) {
    std::vector<Range> ranges(dims);
    int64_t rest = position, count = 1;
    for (size_t d = dims; d-- > 0; rest /= out_[d]) {
      ranges[d] = range(d, rest % out_[d]);
      count *= ranges[d].count;
    }
    for (int64_t i = 0; i < count; ++i) {
      int64_t index = i, element = 0, stride = 1, place = 0, window_stride = 1;
      for (size_t d = dims; d-- > 0; index /= ranges[d].count, stride *= in_[d], window_stride *= op_.size[d]) {
        const int64_t step = index % ranges[d].count;
        element += (ranges[d].first + step * ranges[d].step) * stride;
        place += (ranges[d].skipped + step) * window_stride;
      }
      table.elements.push_back(element);
      table.places.push_back(place);
    }
    table.ends.push_back(table.elements.size());
  }
  return table;
}

/// Which of the elements is the first of the largest; NaN is larger than any number.
template <class T>
size_t largest(const T* values, const int64_t* elements, size_t count) {
  size_t best = 0;
  for (size_t i = 1; i < count; ++i) {
    const T old = values[elements[best]], next = values[elements[i]];
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(old)) break;
      if (next > old || std::isnan(next)) best = i;
    } else {
      if (next > old) best = i;
    }
  }
  return best;
}

template <class T>
std::vector<Literal> evaluate_max(const Windows& windows, const Literal& x, int64_t planes, const TensorType& place_type) {
  const Sizes sizes = sizes_of(place_type);
  Literal values = Literal::uninitialised(x.dtype(), sizes), places = Literal::uninitialised(place_type.dtype, sizes);
  const int64_t in_count = planes == 0 ? 0 : x.count() / planes, out_count = windows.positions();
  const size_t unit = size_bytes(x.dtype());
  std::byte* out = values.mutable_data();
  std::byte* places_out = places.mutable_data();
  std::vector<T> plane(static_cast<size_t>(in_count));
  for (int64_t first = 0; first < out_count && planes > 0;) {
    const WindowTable table = windows.table(first);
    for (int64_t p = 0; p < planes; ++p) {
      load_elements(x, p * in_count, in_count, plane.data());
      size_t start = 0;
      for (size_t i = 0; i < table.ends.size(); start = table.ends[i++]) {
        if (start == table.ends[i]) throw UserError(fmt::format("max_pool: a window of {} lies outside its elements", x.text(0)));
        const size_t best = start + largest(plane.data(), table.elements.data() + start, table.ends[i] - start);
        const auto at = static_cast<size_t>(p * out_count + first) + i;
        store_elements(place_type.dtype, places_out + at * size_bytes(place_type.dtype), 1, &table.places[best]);
        std::memcpy(out + at * unit, x.data() + static_cast<size_t>(p * in_count + table.elements[best]) * unit, unit);
      }
    }
    first += static_cast<int64_t>(table.ends.size());
  }
  return {values, places};
}

double divisor(const Pool& op, size_t inside) {
  if (!op.count_include_pad) return static_cast<double>(std::max<size_t>(inside, 1));
  return static_cast<double>(element_count(op.size));
}

Literal evaluate_average(const Pool& op, const Windows& windows, const Literal& x, int64_t planes, const Sizes& sizes) {
  Literal result = Literal::uninitialised(x.dtype(), sizes);
  const int64_t in_count = planes == 0 ? 0 : x.count() / planes, out_count = windows.positions();
  std::byte* out = result.mutable_data();
  std::vector<double> plane(static_cast<size_t>(in_count)), averages;
  for (int64_t first = 0; first < out_count && planes > 0;) {
    const WindowTable table = windows.table(first);
    averages.resize(table.ends.size());
    for (int64_t p = 0; p < planes; ++p) {
      load_elements(x, p * in_count, in_count, plane.data());
      size_t start = 0;
      for (size_t i = 0; i < table.ends.size(); start = table.ends[i++]) {
        double sum = 0;
        for (size_t e = start; e < table.ends[i]; ++e) sum += plane[static_cast<size_t>(table.elements[e])];
        averages[i] = sum / divisor(op, table.ends[i] - start);
      }
      store_elements(x.dtype(), out + static_cast<size_t>(p * out_count + first) * size_bytes(x.dtype()), static_cast<int64_t>(averages.size()),
                     averages.data());
    }
    first += static_cast<int64_t>(table.ends.size());
  }
  return result;
}

Literal evaluate_average_gradient(const Pool& op, const Windows& windows, const Literal& gradient, int64_t planes, const Sizes& sizes) {
  Literal result = Literal::uninitialised(gradient.dtype(), sizes);
  const int64_t in_count = planes == 0 ? 0 : result.count() / planes, out_count = windows.positions();
  std::vector<double> sums(static_cast<size_t>(result.count()), 0.0), plane(static_cast<size_t>(out_count));
  for (int64_t first = 0; first < out_count && planes > 0;) {
    const WindowTable table = windows.table(first);
    for (int64_t p = 0; p < planes; ++p) {
      load_elements(gradient, p * out_count, out_count, plane.data());
      double* to = sums.data() + p * in_count;
      size_t start = 0;
      for (size_t i = 0; i < table.ends.size(); start = table.ends[i++]) {
        const double part = plane[static_cast<size_t>(first) + i] / divisor(op, table.ends[i] - start);
        for (size_t e = start; e < table.ends[i]; ++e) to[table.elements[e]] += part;
      }
    }
    first += static_cast<int64_t>(table.ends.size());
  }
  store_elements(result.dtype(), result.mutable_data(), result.count(), sums.data());
  return result;
}

std::vector<Literal> evaluate_pool(const EvaluateRequest& request) {
  const auto& op = std::get<Pool>(request.op);
  const Literal& x = request.inputs[0];
  const Sizes sizes = sizes_of(request.results[0]);
  const int64_t planes = element_count(Sizes{sizes[0], sizes[1]});
  if (x.sizes()[0] != sizes[0] || x.sizes()[1] != sizes[1]) throw UserError(fmt::format("{}: found {}", op_name(op.kind), x.text(0)));
  Sizes in(x.sizes().begin() + 2, x.sizes().end()), out(sizes.begin() + 2, sizes.end());
  if (op.kind == PoolKind::AverageGradient) std::swap(in, out);
  for (size_t d = 0; d < in.size(); ++d) {
    const Dim padded = Dim(in[d]) + op.window.padding_low[d] + op.window.padding_high[d], extent = Dim(op.size[d] - 1) * op.window.dilation[d] + 1;
    const int64_t rest = (padded - extent).constant();
    if (rest < 0 || rest / op.window.strides[d] + 1 != out[d])
      throw UserError(
          fmt::format("{}: a window of {} on a padded size of {} does not give {} positions", op_name(op.kind), extent.text(), padded.text(), out[d]));
  }
  const Windows windows(op, std::move(in), std::move(out));
  switch (op.kind) {
    case PoolKind::Max:
      if (is_floating(x.dtype())) return evaluate_max<double>(windows, x, planes, request.results[1]);
      return evaluate_max<int64_t>(windows, x, planes, request.results[1]);
    case PoolKind::Average: return {evaluate_average(op, windows, x, planes, sizes)};
    case PoolKind::AverageGradient: return {evaluate_average_gradient(op, windows, x, planes, sizes)};
  }
  return {};
}

std::vector<std::optional<Value>> pool_gradient(const GradientRequest& request) {
  Pool op = std::get<Pool>(request.op);
  const Value x = request.inputs[0];
  if (!request.result_gradients[0]) return {std::nullopt};
  const Value g = *request.result_gradients[0];
  switch (op.kind) {
    case PoolKind::Max: {
      const int64_t last = g.rank() - 1;
      const Value taken = elements_of_windows(op, request.results[1], x.shape());
      const Value base = reshape(zeros_like(x), {x.dim(0), x.dim(1), element_count(Shape(x.shape().begin() + 2, x.shape().end()))});
      const Value sums = scatter_add(base, 2, flatten(taken, 2, last), flatten(g, 2, last));
      return {reshape(sums, x.shape())};
    }
    case PoolKind::Average:
      op.kind = PoolKind::AverageGradient;
      op.shape = x.shape();
      return {request.builder.emit_one(op, {g})};
    case PoolKind::AverageGradient:
      op.kind = PoolKind::Average;
      op.shape = {};
      return {request.builder.emit_one(op, {g})};
  }
  return {std::nullopt};
}

ShardingRule pool_sharding_rule(const ShardingRequest& request) {
  const Shape& shape = request.inputs[0].shape;
  ShardingRule rule;
  DimFactors dims(shape.size());
  for (size_t d = 0; d < 2; ++d)
    if (shape[d] != Dim(1)) dims[d] = {add_factor(rule, FactorKind::Parallel, shape[d])};
  rule.operands = {dims};
  rule.results.assign(request.results.size(), dims);
  if (std::get<Pool>(request.op).kind != PoolKind::Max) rule.linear_groups = {{0}};
  return rule;
}

std::vector<Value> partition_pool(const PartitionRequest& request) {
  Pool op = std::get<Pool>(request.op);
  if (op.kind == PoolKind::AverageGradient) op.shape = request.local_result_shape(0);
  return request.builder.emit(op, request.local_inputs);
}

Cost pool_cost(const CostRequest& request) {
  const auto& op = std::get<Pool>(request.op);
  Dim elements = element_count(op.kind == PoolKind::AverageGradient ? request.inputs[0].shape : request.results[0].shape);
  for (const int64_t size : op.size) elements = elements * size;
  return {elements, bytes_of(request.inputs) + bytes_of(request.results)};
}

}  // namespace

OpInfo row_of(OpType<Pool>) {
  OpInfo info;
  info.infer = pool_types;
  info.evaluate = evaluate_pool;
  info.gradient = pool_gradient;
  info.sharding_rule = pool_sharding_rule;
  info.partition = partition_pool;
  info.cost = pool_cost;
  return info;
}

}  // namespace stepgraph
