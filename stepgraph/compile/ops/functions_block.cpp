// SPDX-License-Identifier: Apache-2.0
// Block ops and calls.
#include <algorithm>
#include <optional>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions_place.h"
#include "stepgraph/compile/ops/row_parts.h"

namespace stepgraph {
namespace {

/// torch.matmul as one MatMul: batch dims that both have become batch; a batch dim of one side only becomes free, so that nothing is stretched in
/// memory; one Transpose puts the dims in order where that needs one.
struct MatMulForm {
  MatMul op;
  Dims lhs_ones, rhs_ones;  // size-1 dims against a real one: dropped before
  Dims order;               // result dims in wanted order
};

struct BatchDim {
  std::optional<int64_t> lhs, rhs;  // dims of the operands; absent: missing or 1 against a real one
  Dim size;
};

std::vector<BatchDim> batch_dims(const Value& a, const Value& b, Dims& lhs_ones, Dims& rhs_ones) {
  const int64_t lhs_count = std::max<int64_t>(a.rank() - 2, 0), rhs_count = std::max<int64_t>(b.rank() - 2, 0);
  const int64_t count = std::max(lhs_count, rhs_count);
  TensorType lhs_type{a.dtype(), Shape(a.shape().begin(), a.shape().begin() + lhs_count), {}};
  TensorType rhs_type{b.dtype(), Shape(b.shape().begin(), b.shape().begin() + rhs_count), {}};
  const Shape joined = broadcast_shape("matmul batch dims", *a.builder, lhs_type, rhs_type);
  std::vector<BatchDim> result;
  for (int64_t i = 0; i < count; ++i) {
    BatchDim dim{{}, {}, joined[static_cast<size_t>(i)]};
    if (i >= count - lhs_count) dim.lhs = i - (count - lhs_count);
    if (i >= count - rhs_count) dim.rhs = i - (count - rhs_count);
    if (dim.lhs && dim.rhs) {
      const bool lhs_one = a.dim(*dim.lhs) == Dim(1), rhs_one = b.dim(*dim.rhs) == Dim(1);
      if (lhs_one && !rhs_one) lhs_ones.push_back(*dim.lhs), dim.lhs.reset();
      if (rhs_one && !lhs_one) rhs_ones.push_back(*dim.rhs), dim.rhs.reset();
    }
    result.push_back(dim);
  }
  return result;
}

int64_t without(int64_t dim, const Dims& dropped) {
  return dim - std::count_if(dropped.begin(), dropped.end(), [&](int64_t other) { return other < dim; });
}

MatMulForm matmul_form(const Value& a, const Value& b) {
  MatMulForm form;
  const std::vector<BatchDim> batch = batch_dims(a, b, form.lhs_ones, form.rhs_ones);
  form.op.lhs_contract = {without(a.rank() - 1, form.lhs_ones)};
  form.op.rhs_contract = {without(b.rank() == 1 ? 0 : b.rank() - 2, form.rhs_ones)};
  // MatMul gives: shared batch dims, free dims of a, free dims of b. `position` is where each wanted dim lies in that.
  int64_t shared = 0, lhs_free = 0, rhs_free = 0;
  for (const BatchDim& dim : batch) {
    if (dim.lhs && dim.rhs) {
      form.op.lhs_batch.push_back(without(*dim.lhs, form.lhs_ones)), form.op.rhs_batch.push_back(without(*dim.rhs, form.rhs_ones));
      ++shared;
    } else {
      dim.lhs ? ++lhs_free : ++rhs_free;
    }
  }
  const int64_t rows = a.rank() > 1 ? 1 : 0;
  int64_t next_shared = 0, next_lhs = shared, next_rhs = shared + lhs_free + rows;
  for (const BatchDim& dim : batch) {
    int64_t& next = dim.lhs && dim.rhs ? next_shared : dim.lhs ? next_lhs : next_rhs;
    form.order.push_back(next++);
  }
  if (rows == 1) form.order.push_back(next_lhs);
  if (b.rank() > 1) form.order.push_back(next_rhs);
  return form;
}

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

Value matmul(At a, At b) {
  const PlaceScope place(a);
  check_same_graph("matmul", a.value, b.value);
  autocast("matmul", {&a.value, &b.value});
  Operands operands = same_dtype("matmul", a.value, b.value);
  Builder& builder = *a.value.builder;
  for (const Value& operand : {operands.a, operands.b}) {
    if (operand.rank() == 0) fail(builder, fmt::format("matmul: found a scalar, {}, wanted at least one dim", text(operand.type())));
  }
  const Dim& lhs_inner = operands.a.dim(-1);
  const Dim& rhs_inner = operands.b.dim(operands.b.rank() == 1 ? 0 : -2);
  if (builder.module().symbols.equal(lhs_inner, rhs_inner) != Truth::True) {
    fail(builder, fmt::format("matmul: inner dims differ, {} and {}{}", lhs_inner.text(), rhs_inner.text(),
                              ranges_of(builder.module(), {lhs_inner}, {rhs_inner})));
  }
  MatMulForm form = matmul_form(operands.a, operands.b);
  if (!form.lhs_ones.empty()) operands.a = squeeze(operands.a, form.lhs_ones);
  if (!form.rhs_ones.empty()) operands.b = squeeze(operands.b, form.rhs_ones);
  return permute(builder.emit_one(std::move(form.op), {operands.a, operands.b}), form.order);
}

Value dot_general(At a, At b, MatMul spec) {
  const PlaceScope place(a);
  check_same_graph("matmul", a.value, b.value);
  return a.value.builder->emit_one(std::move(spec), {a.value, b.value});
}

Value convolution(At x, At weight, const ConvolutionOptions& options) {
  const PlaceScope place(x);
  check_same_graph("convolution", x.value, weight.value);
  autocast("convolution", {&x.value, &weight.value});
  const Operands operands = same_dtype("convolution", x.value, weight.value);
  Builder& builder = *x.value.builder;
  Convolution op;
  op.window = window_of("convolution", builder, spatial_dims("convolution", x.value), options.strides, options.padding, options.dilation);
  op.groups = options.groups;
  return builder.emit_one(std::move(op), {operands.a, operands.b});
}

Value convolution_transpose(At x, At weight, const ConvolutionOptions& options, std::vector<int64_t> output_padding) {
  constexpr std::string_view function = "convolution_transpose";
  const PlaceScope place(x);
  check_same_graph(function, x.value, weight.value);
  autocast("convolution", {&x.value, &weight.value});
  const Operands operands = same_dtype(function, x.value, weight.value);
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
  const Value result = builder.emit_one(std::move(op), {operands.a, operands.b});
  const bool any_zeros = std::any_of(zeros.begin(), zeros.end(), [](const Dim& dim) { return dim != Dim(0); });
  return any_zeros ? pad(result, Shape(dims + 2, Dim(0)), zeros) : result;
}

Value max_pool(At x, const PoolOptions& options) { return pool(PoolKind::Max, "max_pool", x, options); }
Value average_pool(At x, const PoolOptions& options) { return pool(PoolKind::Average, "average_pool", x, options); }

std::vector<Value> call(Builder& builder, GraphId graph, std::span<const Value> inputs) {
  return builder.emit(Call{graph, builder.module().next_site++}, inputs);
}

}  // namespace stepgraph
