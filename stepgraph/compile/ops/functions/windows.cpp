// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/windows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/indexing.h"
#include "stepgraph/compile/ops/functions/linear_algebra.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/functions/resampling.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/statistics.h"

namespace stepgraph {
namespace {

std::vector<int64_t> for_each_dim(std::string_view function, const Builder& builder, const std::vector<int64_t>& given, size_t dims, int64_t usual) {
  if (given.empty()) return std::vector<int64_t>(dims, usual);
  if (given.size() == 1) return std::vector<int64_t>(dims, given[0]);
  if (given.size() != dims) fail(builder, fmt::format("{}: {} numbers for {} spatial dims", function, given.size(), dims));
  return given;
}

Window window_of(std::string_view function, const Builder& builder, size_t dims, const std::vector<int64_t>& strides, const std::vector<int64_t>& padding,
                 const std::vector<int64_t>& dilation) {
  Window window;
  window.strides = for_each_dim(function, builder, strides, dims, 1);
  window.padding_low = for_each_dim(function, builder, padding, dims, 0);
  window.padding_high = window.padding_low;
  window.dilation = for_each_dim(function, builder, dilation, dims, 1);
  return window;
}

size_t spatial_dims(std::string_view function, const Value& x) {
  if (x.rank() < 2) fail(*x.builder, fmt::format("{}: found {}, wanted [batch, channels, spatial...]", function, text(x.type())));
  return static_cast<size_t>(x.rank() - 2);
}

Value floating(const Value& x) { return is_floating(x.dtype()) ? x : convert(x, DType::F32); }

Value pool(PoolKind kind, std::string_view function, const At& x, const PoolOptions& options) {
  const PlaceScope place(x);
  Builder& builder = *x.value.builder;
  const size_t dims = spatial_dims(function, x.value);
  if (options.size.empty()) fail(builder, fmt::format("{}: the window has no size", function));
  Pool op;
  op.kind = kind;
  op.size = for_each_dim(function, builder, options.size, dims, 1);
  op.window = window_of(function, builder, dims, options.strides.empty() ? op.size : options.strides, options.padding, options.dilation);
  op.count_include_pad = kind != PoolKind::Average || options.count_include_pad;
  return builder.emit(std::move(op), {floating(x.value)}).at(0);
}

}  // namespace

namespace {

/// With a bias, which is added before the result is rounded, 16-bit operands are f32.
struct ConvolutionOperands {
  Value x, weight;
  std::optional<Value> bias;
  DType dtype;  ///< of the result

  Value finished(const Value& result) const {
    if (!bias) return result;
    return convert(result + broadcast_in_dim(widened(*bias), result.shape(), {1}), promote(dtype, bias->dtype()));
  }
};
ConvolutionOperands convolution_operands(std::string_view function, Value x, Value weight, std::optional<Value> bias) {
  check_same_graph(function, x, weight);
  if (bias)
    autocast("convolution", {&x, &weight, &*bias});
  else
    autocast("convolution", {&x, &weight});
  const Operands same = same_dtype(function, x, weight);
  if (!bias) return {same.a, same.b, bias, same.a.dtype()};
  return {widened(same.a), widened(same.b), bias, same.a.dtype()};
}

}  // namespace

Value convolution(At x, At weight, const ConvolutionOptions& options, std::optional<Value> bias) {
  const PlaceScope place(x);
  const ConvolutionOperands operands = convolution_operands("convolution", x.value, weight.value, bias);
  Builder& builder = *x.value.builder;
  Convolution op;
  op.window = window_of("convolution", builder, spatial_dims("convolution", x.value), options.strides, options.padding, options.dilation);
  op.groups = options.groups;
  return operands.finished(builder.emit_one(std::move(op), {operands.x, operands.weight}));
}

Value convolution_transpose(At x, At weight, const ConvolutionOptions& options, std::vector<int64_t> output_padding, std::optional<Value> bias) {
  constexpr std::string_view function = "convolution_transpose";
  const PlaceScope place(x);
  const ConvolutionOperands operands = convolution_operands(function, x.value, weight.value, bias);
  Builder& builder = *x.value.builder;
  const size_t dims = spatial_dims(function, x.value);
  if (weight->rank() != x->rank()) fail(builder, fmt::format("{}: ranks differ, {} and weight {}", function, text(x->type()), text(weight->type())));
  if (options.groups < 1) fail(builder, fmt::format("{}: {} groups", function, options.groups));
  // What a convolution with this weight, [its output channels, its input channels / groups, window...], does backwards.
  Convolution op;
  op.kind = ConvolutionKind::InputGradient;
  op.window = window_of(function, builder, dims, options.strides, options.padding, options.dilation);
  op.groups = options.groups;
  output_padding = for_each_dim(function, builder, output_padding, dims, 0);
  op.shape = {x->dim(0), weight->dim(1) * options.groups};
  Shape zeros(dims + 2, Dim(0));
  for (size_t i = 0; i < dims; ++i) {
    const int64_t stride = op.window.strides[i], dilation = op.window.dilation[i];
    if (output_padding[i] < 0 || output_padding[i] >= std::max(stride, dilation)) {
      fail(builder, fmt::format("{}: output padding {} must be below the stride {} or the dilation {}", function, output_padding[i], stride, dilation));
    }
    const auto dim = static_cast<int64_t>(i) + 2;
    const Dim plain = (x->dim(dim) - 1) * stride - op.window.padding_low[i] * 2 + (weight->dim(dim) - 1) * dilation + 1;
    // Output padding that the stride does not swallow crops less of the full result at its end, and then adds zeros, which no window reaches.
    const int64_t beyond = std::max<int64_t>(output_padding[i] - (stride - 1), 0);
    const int64_t uncropped = std::min(beyond, op.window.padding_high[i]);
    op.window.padding_high[i] -= uncropped;
    zeros[i + 2] = beyond - uncropped;
    op.shape.push_back(plain + (output_padding[i] - (beyond - uncropped)));
  }
  const Value result = builder.emit_one(std::move(op), {operands.x, operands.weight});
  const bool any_zeros = std::any_of(zeros.begin(), zeros.end(), [](const Dim& dim) { return dim != Dim(0); });
  return operands.finished(any_zeros ? pad(result, Shape(dims + 2, Dim(0)), zeros) : result);
}

Value elements_of_windows(const Pool& pool, At places, const Shape& shape) {
  const PlaceScope scope(places);
  Builder& builder = *places.value.builder;
  const Value place = convert(places.value, DType::I64);
  const Shape positions(place.shape().begin() + 2, place.shape().end());
  const auto number = [&](const Dim& size) {
    return size.is_constant() ? scalar(builder, DType::I64, static_cast<double>(size.constant())) : size_value(builder, DType::I64, size);
  };
  Value index = zeros_like(place);
  int64_t inner = 1;  // places of the window in one step along the dim
  Dim stride = 1;     // elements of x in one step
  for (size_t d = positions.size(); d-- > 0; inner *= pool.size[d], stride = stride * shape[d + 2]) {
    const Value step = remainder(floor_divide(place, full_like(place, static_cast<double>(inner))), full_like(place, static_cast<double>(pool.size[d])));
    const Value start = iota(builder, DType::I64, positions, static_cast<int64_t>(d)) * static_cast<double>(pool.window.strides[d]);
    index = index + (step * static_cast<double>(pool.window.dilation[d]) + (start - static_cast<double>(pool.window.padding_low[d]))) * number(stride);
  }
  return index;
}

Value max_pool(At x, const PoolOptions& options) { return pool(PoolKind::Max, "max_pool", x, options); }
Value average_pool(At x, const PoolOptions& options) { return pool(PoolKind::Average, "average_pool", x, options); }

}  // namespace stepgraph
