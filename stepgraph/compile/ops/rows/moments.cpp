// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/element_expressions.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

bool is_reduced(const Moments& op, size_t d) { return std::binary_search(op.dims.begin(), op.dims.end(), static_cast<int64_t>(d)); }

std::vector<TensorType> moments_types(const InferRequest& request) {
  const auto& op = std::get<Moments>(request.op);
  const TensorType& x = request.inputs[0];
  check_floating("moments", x);
  check_dims("moments", op.dims, x);
  TensorType result{x.dtype, {}, {}};
  for (size_t d = 0; d < x.rank(); ++d)
    if (!is_reduced(op, d)) result.shape.push_back(x.shape[d]);
  return {result, result};
}

/// Offsets of all indices over the dims for which `take` says so, the first dim slowest.
template <class Take>
std::vector<int64_t> offsets(const Sizes& sizes, Take take) {
  const Sizes strides = row_major_strides(sizes);
  std::vector<int64_t> result = {0};
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!take(d)) continue;
    std::vector<int64_t> next;
    next.reserve(result.size() * static_cast<size_t>(sizes[d]));
    for (const int64_t offset : result)
      for (int64_t i = 0; i < sizes[d]; ++i) next.push_back(offset + i * strides[d]);
    result = std::move(next);
  }
  return result;
}

/// x as [kept, reduced] by offsets, and the run of the last dim, which is the inner one of either.
struct Layout {
  std::vector<int64_t> kept, reduced;
  int64_t run = 1;
  bool run_is_reduced = false;
  double count = 0;
};

/// Adds up `term(element)` of runs in four fixed lanes: the chain of dependent additions would be what takes the time.
template <class T, class Term>
double sum_runs(const T* x, const std::vector<int64_t>& starts, int64_t run, Term term) {
  double lanes[4] = {0, 0, 0, 0};
  for (const int64_t start : starts) {
    const T* from = x + start;
    int64_t i = 0;
    for (; i + 4 <= run; i += 4)
      for (int64_t l = 0; l < 4; ++l) lanes[l] += term(from[i + l]);
    for (; i < run; ++i) lanes[0] += term(from[i]);
  }
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/// Two passes: the second works on deviations, so nothing cancels however far the mean is from zero.
template <class T, class Wide>
void compute(const T* x, const Layout& layout, Wide wide, double* mean, double* variance) {
  if (layout.run_is_reduced) {
    for (size_t k = 0; k < layout.kept.size(); ++k) {
      const T* from = x + layout.kept[k];
      const double m = sum_runs(from, layout.reduced, layout.run, wide) / layout.count;
      mean[k] = m;
      variance[k] = sum_runs(from, layout.reduced, layout.run,
                             [&](T element) {
                               const double deviation = wide(element) - m;
                               return deviation * deviation;
                             }) /
                    layout.count;
    }
    return;
  }
  const auto run = static_cast<size_t>(layout.run);
  for (size_t k = 0; k < layout.kept.size(); ++k) {
    double *m = mean + k * run, *v = variance + k * run;
    std::fill_n(m, run, 0.0), std::fill_n(v, run, 0.0);
    for (const int64_t offset : layout.reduced) {
      const T* from = x + layout.kept[k] + offset;
      for (size_t i = 0; i < run; ++i) m[i] += wide(from[i]);
    }
    for (size_t i = 0; i < run; ++i) m[i] /= layout.count;
    for (const int64_t offset : layout.reduced) {
      const T* from = x + layout.kept[k] + offset;
      for (size_t i = 0; i < run; ++i) {
        const double deviation = wide(from[i]) - m[i];
        v[i] += deviation * deviation;
      }
    }
    for (size_t i = 0; i < run; ++i) v[i] /= layout.count;
  }
}

void compute(const Literal& x, const Layout& layout, double* mean, double* variance) {
  const auto plain = [](auto value) { return static_cast<double>(value); };
  switch (x.dtype()) {
    case DType::F64: return compute(reinterpret_cast<const double*>(x.data()), layout, plain, mean, variance);
    case DType::F32: return compute(reinterpret_cast<const float*>(x.data()), layout, plain, mean, variance);
    case DType::BF16:
      return compute(
          reinterpret_cast<const uint16_t*>(x.data()), layout, [](uint16_t bits) { return static_cast<double>(bf16_to_f32(bits)); }, mean, variance);
    case DType::F16:
      return compute(
          reinterpret_cast<const uint16_t*>(x.data()), layout, [](uint16_t bits) { return static_cast<double>(f16_to_f32(bits)); }, mean, variance);
    case DType::I64:
    case DType::I32:
    case DType::I8:
    case DType::U8:
    case DType::Bool: break;
  }
  check_failed("a floating dtype", std::string(name(x.dtype())), std::source_location::current());
}

std::vector<Literal> evaluate_moments(const EvaluateRequest& request) {
  const auto& op = std::get<Moments>(request.op);
  const Literal& x = request.inputs[0];
  Layout layout;
  const size_t last = x.rank() == 0 ? 0 : x.rank() - 1;
  if (x.rank() > 0) layout.run = x.sizes()[last];
  layout.run_is_reduced = x.rank() == 0 || is_reduced(op, last);
  layout.kept = offsets(x.sizes(), [&](size_t d) { return d != last && !is_reduced(op, d); });
  layout.reduced = offsets(x.sizes(), [&](size_t d) { return d != last && is_reduced(op, d); });
  layout.count = static_cast<double>(layout.reduced.size()) * (layout.run_is_reduced ? static_cast<double>(layout.run) : 1.0);
  const Sizes sizes = sizes_of(request.results[0]);
  std::vector<Literal> results = {Literal::uninitialised(x.dtype(), sizes), Literal::uninitialised(x.dtype(), sizes)};
  const int64_t count = results[0].count();
  SG_CHECK(count == static_cast<int64_t>(layout.kept.size()) * (layout.run_is_reduced ? 1 : layout.run), "moments sizes");
  // The mean of nothing is not a number.
  std::vector<double> mean(static_cast<size_t>(count), std::numeric_limits<double>::quiet_NaN()), variance = mean;
  if (x.count() > 0) compute(x, layout, mean.data(), variance.data());
  store_elements(x.dtype(), results[0].mutable_data(), count, mean.data());
  store_elements(x.dtype(), results[1].mutable_data(), count, variance.data());
  return results;
}

/// The number of reduced elements as a scalar. From the shape, so at the Logical stage it is that of the whole batch.
Value count_value(Builder& builder, DType dtype, const Moments& op, const Shape& shape) {
  Dim count = 1;
  for (const int64_t d : op.dims) count = count * shape[static_cast<size_t>(d)];
  return count.is_constant() ? scalar(builder, dtype, static_cast<double>(count.constant())) : size_value(builder, dtype, count);
}

std::vector<std::optional<Value>> moments_gradient(const GradientRequest& request) {
  const auto& op = std::get<Moments>(request.op);
  const Value x = request.inputs[0];
  const DType dtype = x.dtype();
  const DType wide = size_bytes(dtype) == 2 ? DType::F32 : dtype;  // the count may not fit 16 bits
  Dims kept;
  for (size_t d = 0; d < x.shape().size(); ++d)
    if (!is_reduced(op, d)) kept.push_back(static_cast<int64_t>(d));
  const auto spread = [&](Value value) { return broadcast_in_dim(value, x.shape(), kept); };
  const Value count = count_value(request.builder, wide, op, x.shape());
  std::optional<Value> sum;
  if (request.result_gradients[0]) sum = spread(convert(*request.result_gradients[0], wide) / count);
  if (request.result_gradients[1]) {
    // The mean's own part of the variance's derivative is the sum of deviations, which is zero.
    const Value deviation = convert(x, wide) - spread(convert(request.results[0], wide));
    const Value part = deviation * spread(convert(*request.result_gradients[1], wide) * 2.0 / count);
    sum = sum ? *sum + part : part;
  }
  return {convert(*sum, dtype)};
}

/// A split reduced dim is dealt with by partition: results are whole, so its factor is not a Reduction.
ShardingRule moments_sharding_rule(const ShardingRequest& request) {
  const auto& op = std::get<Moments>(request.op);
  const Shape& shape = request.inputs[0].shape;
  ShardingRule rule;
  DimFactors operand, result;
  for (size_t d = 0; d < shape.size(); ++d) {
    operand.emplace_back();
    if (shape[d] != Dim(1)) operand.back().push_back(add_factor(rule, FactorKind::Parallel, shape[d]));
    if (!is_reduced(op, d)) result.push_back(operand.back());
  }
  rule.operands = {operand};
  rule.results = {result, result};
  return rule;
}

/// Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979): from each part's count, mean and variance, in
/// f64, so that the parts lose nothing that one device would have kept.
std::vector<Value> partition_moments(const PartitionRequest& request) {
  const auto& op = std::get<Moments>(request.op);
  std::vector<AxisRef> axes;
  if (request.inputs[0].sharding) {
    for (const int64_t d : op.dims) {
      const std::vector<AxisRef>& own = request.inputs[0].sharding->dims[static_cast<size_t>(d)].axes;
      axes.insert(axes.end(), own.begin(), own.end());
    }
  }
  if (axes.empty()) return request.builder.emit(op, request.local_inputs);
  Builder& builder = request.builder;
  const Value x = convert(request.local_inputs[0], DType::F64);
  const std::vector<Value> part = builder.emit(op, {x});
  const Value part_count = count_value(builder, DType::F64, op, x.shape()), count = count_value(builder, DType::F64, op, request.inputs[0].shape);
  // A part may be empty; the mean of nothing is not a number, even when it is multiplied by a count of 0.
  const Value has_some = broadcast_to(greater(part_count, 0.0), part[0].shape());
  const Value part_mean = where(has_some, part[0], zeros_like(part[0])), part_variance = where(has_some, part[1], zeros_like(part[1]));
  const auto total = [&](Value value) { return builder.emit_one(AllReduce{ReduceKind::Sum, axes}, {value}); };
  const Value mean = total(part_mean * part_count) / count;
  const Value shift = part_mean - mean;
  const Value variance = total((part_variance + shift * shift) * part_count) / count;
  const DType dtype = request.inputs[0].dtype;
  return {convert(mean, dtype), convert(variance, dtype)};
}

Cost moments_cost(const CostRequest& request) { return {element_count(request.inputs[0].shape) * 4, bytes_of(request.inputs) + bytes_of(request.results)}; }

}  // namespace

OpInfo row_of(OpType<Moments>) {
  OpInfo info;
  info.infer = moments_types;
  info.evaluate = evaluate_moments;
  info.element_kind = ElementKind::Reduce;
  info.element = moments_element;
  info.gradient = moments_gradient;
  info.sharding_rule = moments_sharding_rule;
  info.partition = partition_moments;
  info.cost = moments_cost;
  return info;
}

}  // namespace stepgraph
