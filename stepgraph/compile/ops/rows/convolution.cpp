// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/core.h>

#include "stepgraph/compile/ops/kernels/convolution_columns.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/kernels/matmul.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/rows.h"
#include "stepgraph/compile/ops/rows/window.h"

namespace stepgraph {
namespace {

constexpr std::string_view op_name(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::Forward: return "convolution";
    case ConvolutionKind::InputGradient: return "convolution_input_gradient";
    case ConvolutionKind::WeightGradient: return "convolution_weight_gradient";
  }
  return "convolution";
}

/// The shape of the result of the forward convolution.
Shape forward_shape(const Convolution& op, const TensorType& x, const TensorType& weight, const Module& module) {
  const std::string_view what = op_name(op.kind);
  const std::string both = text(x) + " and weight " + text(weight);
  if (x.rank() < 2 || weight.rank() != x.rank())
    throw UserError(fmt::format("{}: found {}, wanted [batch, channels, spatial...] and [outputs, inputs / groups, window...]", what, both));
  check_window(what, op.window, x.rank() - 2);
  if (op.groups < 1) throw UserError(fmt::format("{}: {} groups, wanted at least 1", what, op.groups));
  if (!same_size(module, x.shape[1], weight.shape[1] * op.groups))
    throw UserError(fmt::format("{}: {} channels, but weight takes {} in {} groups: {}{}", what, x.shape[1].text(), weight.shape[1].text(), op.groups, both,
                                ranges_of(module, x.shape, weight.shape)));
  if (module.symbols.divides(op.groups, weight.shape[0]) == Truth::False)
    throw UserError(fmt::format("{}: {} output channels do not divide into {} groups: {}", what, weight.shape[0].text(), op.groups, both));
  Shape shape = {x.shape[0], weight.shape[0]};
  for (size_t d = 0; d + 2 < x.rank(); ++d) shape.push_back(window_result(what, op.window, d, x, weight.shape[d + 2], module));
  return shape;
}

void check_gradient_shape(const Convolution& op, const TensorType& found, const Shape& wanted, const Module& module) {
  if (!same_shape(module, found.shape, wanted))
    throw UserError(fmt::format("{}: result gradient is {}, the convolution gives {}{}", op_name(op.kind), text(found), text(wanted),
                                ranges_of(module, found.shape, wanted)));
}

std::vector<TensorType> convolution_types(const InferRequest& request) {
  const auto& op = std::get<Convolution>(request.op);
  const TensorType &a = request.inputs[0], &b = request.inputs[1];
  check_same_dtype(op_name(op.kind), a, b);
  check_floating(op_name(op.kind), a);
  const TensorType shaped{a.dtype, op.shape, {}};
  check_sizes(op_name(op.kind), op.shape, request.module);
  switch (op.kind) {
    case ConvolutionKind::Forward: return {{a.dtype, forward_shape(op, a, b, request.module), {}}};
    case ConvolutionKind::InputGradient: check_gradient_shape(op, a, forward_shape(op, shaped, b, request.module), request.module); return {shaped};
    case ConvolutionKind::WeightGradient: check_gradient_shape(op, b, forward_shape(op, a, shaped, request.module), request.module); return {shaped};
  }
  return {};
}

std::vector<int64_t> multiples(int64_t count, int64_t step) {
  std::vector<int64_t> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) result[static_cast<size_t>(i)] = i * step;
  return result;
}

/// Everything that the products of one op share. Matrices of one group: weight [out_channels, rows], columns [rows, positions], result gradient
/// [out_channels, positions].
struct Products {
  explicit Products(const ConvolutionSizes& s)
      : sizes(s),
        runs(column_runs(s)),
        outputs_by_row(multiples(s.out_channels, s.rows())),
        outputs_by_position(multiples(s.out_channels, s.out_count)),
        row(multiples(s.rows(), 1)),
        position(multiples(s.out_count, 1)),
        rows_by_position(multiples(s.rows(), s.out_count)) {}
  const ConvolutionSizes& sizes;
  std::vector<ColumnRun> runs;
  std::vector<int64_t> outputs_by_row, outputs_by_position, row, position, rows_by_position;
  MatMulSpace space;

  const std::byte* x_part(const Literal& x, int64_t sample, int64_t group) const {
    return x.data() + static_cast<size_t>((sample * sizes.groups + group) * sizes.in_channels * sizes.in_count) * size_bytes(x.dtype());
  }
  const std::byte* weight_part(const Literal& weight, int64_t group) const {
    return weight.data() + static_cast<size_t>(group * sizes.out_channels * sizes.rows()) * size_bytes(weight.dtype());
  }
  int64_t out_offset(int64_t sample, int64_t group) const { return (sample * sizes.groups + group) * sizes.out_channels * sizes.out_count; }
};

Literal evaluate_forward(const ConvolutionSizes& sizes, const Literal& x, const Literal& weight, Literal result) {
  Products products(sizes);
  const size_t unit = size_bytes(x.dtype());
  Literal columns = Literal::uninitialised(x.dtype(), {sizes.rows(), sizes.out_count});
  std::byte* out = result.mutable_data();
  for (int64_t sample = 0; sample < sizes.samples; ++sample) {
    for (int64_t group = 0; group < sizes.groups; ++group) {
      fill_columns(products.runs, sizes, products.x_part(x, sample, group), columns.mutable_data(), unit);
      const MatrixView a{products.weight_part(weight, group), x.dtype(), &products.outputs_by_row, &products.row};
      const MatrixView b{columns.data(), x.dtype(), &products.rows_by_position, &products.position};
      multiply(a, b, out + static_cast<size_t>(products.out_offset(sample, group)) * unit, x.dtype(), products.space);
    }
  }
  return result;
}

Literal evaluate_input_gradient(const ConvolutionSizes& sizes, const Literal& gradient, const Literal& weight, Literal result) {
  Products products(sizes);
  const size_t unit = size_bytes(gradient.dtype());
  Literal columns = Literal::uninitialised(DType::F64, {sizes.rows(), sizes.out_count});
  std::vector<double> part(static_cast<size_t>(sizes.in_channels * sizes.in_count));
  std::byte* out = result.mutable_data();
  for (int64_t i = 0; i < sizes.samples * sizes.groups; ++i) {
    const int64_t sample = i / sizes.groups, group = i % sizes.groups;
    const MatrixView a{products.weight_part(weight, group), gradient.dtype(), &products.row, &products.outputs_by_row};
    const MatrixView b{gradient.data() + static_cast<size_t>(products.out_offset(sample, group)) * unit, gradient.dtype(), &products.outputs_by_position,
                       &products.position};
    multiply(a, b, columns.mutable_data(), DType::F64, products.space);
    std::fill(part.begin(), part.end(), 0.0);
    add_columns(products.runs, sizes, columns.as<double>().data(), part.data());
    const auto count = static_cast<int64_t>(part.size());
    store_elements(result.dtype(), out + static_cast<size_t>(i * count) * unit, count, part.data());
  }
  return result;
}

Literal evaluate_weight_gradient(const ConvolutionSizes& sizes, const Literal& x, const Literal& gradient, Literal result) {
  Products products(sizes);
  const size_t unit = size_bytes(x.dtype());
  Literal columns = Literal::uninitialised(x.dtype(), {sizes.rows(), sizes.out_count});
  Literal sums(DType::F64, {sizes.groups, sizes.out_channels, sizes.rows()});
  auto* out = reinterpret_cast<double*>(sums.mutable_data());
  for (int64_t sample = 0; sample < sizes.samples; ++sample) {
    for (int64_t group = 0; group < sizes.groups; ++group) {
      fill_columns(products.runs, sizes, products.x_part(x, sample, group), columns.mutable_data(), unit);
      const MatrixView a{gradient.data() + static_cast<size_t>(products.out_offset(sample, group)) * unit, x.dtype(), &products.outputs_by_position,
                         &products.position};
      const MatrixView b{columns.data(), x.dtype(), &products.position, &products.rows_by_position};
      multiply(a, b, reinterpret_cast<std::byte*>(out + group * sizes.out_channels * sizes.rows()), DType::F64, products.space, true);
    }
  }
  store_elements(result.dtype(), result.mutable_data(), result.count(), out);
  return result;
}

/// At the Local stage sizes may have been undecidable until now.
void check_gradient_sizes(const Convolution& op, const ConvolutionSizes& sizes, const Literal& gradient) {
  Sizes wanted = {sizes.samples, sizes.out_channels * sizes.groups};
  for (size_t d = 0; d + 2 < gradient.rank(); ++d) wanted.push_back(sizes.out[d]);
  if (wanted != gradient.sizes()) throw UserError(fmt::format("{}: result gradient is {}", op_name(op.kind), gradient.text(0)));
}

std::vector<Literal> evaluate_convolution(const EvaluateRequest& request) {
  const auto& op = std::get<Convolution>(request.op);
  const Literal &a = request.inputs[0], &b = request.inputs[1];
  const Sizes shape = sizes_of(request.results[0]);
  switch (op.kind) {
    case ConvolutionKind::Forward: {
      const ConvolutionSizes sizes = convolution_sizes(a.sizes(), b.sizes(), op);
      return {evaluate_forward(sizes, a, b, Literal::uninitialised(a.dtype(), shape))};
    }
    case ConvolutionKind::InputGradient: {
      const ConvolutionSizes sizes = convolution_sizes(shape, b.sizes(), op);
      check_gradient_sizes(op, sizes, a);
      return {evaluate_input_gradient(sizes, a, b, Literal::uninitialised(a.dtype(), shape))};
    }
    case ConvolutionKind::WeightGradient: {
      const ConvolutionSizes sizes = convolution_sizes(a.sizes(), shape, op);
      check_gradient_sizes(op, sizes, b);
      return {evaluate_weight_gradient(sizes, a, b, Literal::uninitialised(a.dtype(), shape))};
    }
  }
  return {};
}

/// The three kinds are the three derivatives of one trilinear form in x, weight and result gradient, so each one's gradients are the other two.
std::vector<std::optional<Value>> convolution_gradient(const GradientRequest& request) {
  const auto& op = std::get<Convolution>(request.op);
  const Value a = request.inputs[0], b = request.inputs[1], g = *request.result_gradients[0];
  const auto emit = [&](ConvolutionKind kind, Value first, Value second, const Shape& shape) {
    return request.builder.emit_one(Convolution{kind, op.window, op.groups, shape}, {first, second});
  };
  std::vector<std::optional<Value>> result(2);
  switch (op.kind) {
    case ConvolutionKind::Forward:
      if (request.needed[0]) result[0] = emit(ConvolutionKind::InputGradient, g, b, a.shape());
      if (request.needed[1]) result[1] = emit(ConvolutionKind::WeightGradient, a, g, b.shape());
      break;
    case ConvolutionKind::InputGradient:
      if (request.needed[0]) result[0] = emit(ConvolutionKind::Forward, g, b, {});
      if (request.needed[1]) result[1] = emit(ConvolutionKind::WeightGradient, g, a, b.shape());
      break;
    case ConvolutionKind::WeightGradient:
      if (request.needed[0]) result[0] = emit(ConvolutionKind::InputGradient, b, g, a.shape());
      if (request.needed[1]) result[1] = emit(ConvolutionKind::Forward, a, g, {});
      break;
  }
  return result;
}

/// Spatial dims are never split; channels only without groups.
ShardingRule convolution_sharding_rule(const ShardingRequest& request) {
  const auto& op = std::get<Convolution>(request.op);
  const Shape& first = request.inputs[0].shape;
  const Shape& second = request.inputs[1].shape;
  const bool is_weight_gradient = op.kind == ConvolutionKind::WeightGradient;
  const Shape& weight = is_weight_gradient ? request.results[0].shape : second;
  const auto kind_for = [&](ConvolutionKind reducing) { return op.kind == reducing ? FactorKind::Reduction : FactorKind::Parallel; };
  ShardingRule rule;
  const auto factor = [&](FactorKind kind, const Dim& size) { return size == Dim(1) ? std::vector<int>{} : std::vector<int>{add_factor(rule, kind, size)}; };
  const std::vector<int> batch = factor(kind_for(ConvolutionKind::WeightGradient), first[0]);
  std::vector<int> inputs, outputs;
  if (op.groups == 1) {
    inputs = factor(kind_for(ConvolutionKind::Forward), weight[1]);
    outputs = factor(kind_for(ConvolutionKind::InputGradient), weight[0]);
  }
  DimFactors x(first.size()), w(first.size()), g(first.size());
  x[0] = batch, x[1] = inputs;
  w[0] = outputs, w[1] = inputs;
  g[0] = batch, g[1] = outputs;
  switch (op.kind) {
    case ConvolutionKind::Forward: rule.operands = {x, w}, rule.results = {g}; break;
    case ConvolutionKind::InputGradient: rule.operands = {g, w}, rule.results = {x}; break;
    case ConvolutionKind::WeightGradient: rule.operands = {x, g}, rule.results = {w}; break;
  }
  rule.linear_groups = {{0}, {1}};
  return rule;
}

std::vector<Value> partition_convolution(const PartitionRequest& request) {
  Convolution op = std::get<Convolution>(request.op);
  if (op.kind != ConvolutionKind::Forward) op.shape = request.local_result_shape(0);
  return request.builder.emit(op, request.local_inputs);
}

Cost convolution_cost(const CostRequest& request) {
  const auto& op = std::get<Convolution>(request.op);
  // One product for each element of the result gradient and of the weight's window and input channels.
  const Shape& result =
      op.kind == ConvolutionKind::Forward ? request.results[0].shape : request.inputs[op.kind == ConvolutionKind::InputGradient ? 0 : 1].shape;
  const Shape& weight = op.kind == ConvolutionKind::WeightGradient ? request.results[0].shape : request.inputs[1].shape;
  Dim products = element_count(result);
  for (size_t d = 1; d < weight.size(); ++d) products = products * weight[d];
  return {products * 2, bytes_of(request.inputs) + bytes_of(request.results)};
}

}  // namespace

OpInfo row_of(OpType<Convolution>) {
  OpInfo info;
  info.operands = {2, 2};
  info.infer = convolution_types;
  info.evaluate = evaluate_convolution;
  info.gradient = convolution_gradient;
  info.sharding_rule = convolution_sharding_rule;
  info.partition = partition_convolution;
  info.cost = convolution_cost;
  return info;
}

}  // namespace stepgraph
