// SPDX-License-Identifier: Apache-2.0
// Products, convolutions, normalisations, attention, dropout, pooling, resampling.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/capture/pt2/expression.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/attention.h"
#include "stepgraph/compile/ops/composite/linear.h"
#include "stepgraph/compile/ops/composite/normalization.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

void linear_row(OperatorCall& call) { call.result(linear(call.tensor("input"), call.tensor("weight"), call.maybe_tensor("bias"))); }
void matmul_row(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.has("mat2") ? call.tensor("mat2") : call.has("vec") ? call.tensor("vec") : call.has("tensor") ? call.tensor("tensor") : call.tensor("other");
  if (a.dtype() != b.dtype()) call.fail("expected both operands of one dtype, found " + std::string(name(a.dtype())) + " and " + std::string(name(b.dtype())));
  call.result(matmul(a, b));
}
void addmm_row(OperatorCall& call) { scaled_sum(call, unrounded_matmul(call.tensor("mat1"), call.tensor("mat2"))); }
void baddbmm_row(OperatorCall& call) { scaled_sum(call, unrounded_matmul(call.tensor("batch1"), call.tensor("batch2"))); }
void outer_row(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.has("vec2") ? call.tensor("vec2") : call.tensor("other");
  call.result(unsqueeze(a, 1) * unsqueeze(b, 0));
}
void einsum_row(OperatorCall& call) {
  const std::vector<Value> operands = call.tensors("tensors");
  const std::string equation = call.text("equation");
  const size_t arrow = equation.find("->");
  const auto is_kept = [&](char label) { return !std::isalpha(static_cast<unsigned char>(label)) || equation.find(label, arrow) != std::string::npos; };
  if (operands.size() != 1 || arrow == std::string::npos || !std::all_of(equation.begin(), equation.begin() + static_cast<ptrdiff_t>(arrow), is_kept))
    return call.result(einsum(equation, operands));
  // Nothing is summed: PyTorch gives a view.
  call.alias(call.handles("tensors")[0].view({[equation](const Value& base) { return einsum(equation, std::vector<Value>{base}); },
                                              [](const Value&, const Value&) -> Value { throw UserError("einsum: a write to the view that an einsum of one tensor gives is not supported; clone it first"); }}));
}

ConvolutionOptions convolution_options(OperatorCall& call) {
  ConvolutionOptions options;
  options.strides = call.integers("stride", {1});
  options.dilation = call.integers("dilation", {1});
  options.padding = call.integers("padding", {0});
  options.groups = call.integer("groups", 1);
  return options;
}
/// With or without a batch dim; a program whose operators were changed may have anything.
void check_images(OperatorCall& call, const Value& x, int64_t spatial) {
  if (spatial < 0 || (x.rank() != spatial + 1 && x.rank() != spatial + 2))
    call.fail("found " + text(x.type()) + ", wanted channels and " + std::to_string(spatial) + " spatial dims, with or without a batch dim");
}
template <class F>
Value batched(OperatorCall& call, const Value& x, int64_t spatial, F&& f) {
  check_images(call, x, spatial);
  if (x.rank() == spatial + 2) return f(x);
  return squeeze(f(unsqueeze(x, 0)), {0});
}
void conv_padding_row(OperatorCall& call) {
  // conv2d.padding: "same" or "valid".
  const Value weight = call.tensor("weight");
  const int64_t spatial = weight.rank() - 2;
  ConvolutionOptions options;
  options.strides = call.integers("stride", {1});
  options.dilation = call.integers("dilation", {1});
  options.groups = call.integer("groups", 1);
  Value x = call.tensor("input");
  const bool same = call.text("padding", "valid") == "same";
  if (options.dilation.size() != 1 && static_cast<int64_t>(options.dilation.size()) != spatial)
    call.fail("found " + std::to_string(options.dilation.size()) + " dilations for " + std::to_string(spatial) + " spatial dims");
  call.result(batched(call, x, spatial, [&](const Value& images) {
    Value padded = images;
    if (same) {
      Shape low(static_cast<size_t>(images.rank()), Dim(0)), high = low;
      for (int64_t d = 0; d < spatial; ++d) {
        const int64_t dilation = options.dilation[options.dilation.size() == 1 ? 0 : static_cast<size_t>(d)];
        const int64_t total = dilation * (weight.dim(2 + d).constant() - 1);
        low[static_cast<size_t>(2 + d)] = total / 2;
        high[static_cast<size_t>(2 + d)] = total - total / 2;
      }
      padded = pad(images, low, high, 0);
    }
    return convolution(padded, weight, options, call.maybe_tensor("bias"));
  }));
}
void conv_row(OperatorCall& call) {
  const Value weight = call.tensor("weight");
  call.result(batched(call, call.tensor("input"), weight.rank() - 2, [&](const Value& x) { return convolution(x, weight, convolution_options(call), call.maybe_tensor("bias")); }));
}
void conv_transpose_row(OperatorCall& call) {
  const Value weight = call.tensor("weight");
  call.result(batched(call, call.tensor("input"), weight.rank() - 2, [&](const Value& x) {
    return convolution_transpose(x, weight, convolution_options(call), call.integers("output_padding", {}), call.maybe_tensor("bias"));
  }));
}
void convolution_row(OperatorCall& call) { call.boolean("transposed", false) ? conv_transpose_row(call) : conv_row(call); }

void layer_norm_row(OperatorCall& call) {
  const Value x = call.tensor("input");
  const int64_t rank = static_cast<int64_t>(call.sizes("normalized_shape").size());
  call.result(layer_norm(x, rank, call.maybe_tensor("weight"), call.maybe_tensor("bias"), call.real("eps", 1e-5)));
}
Value widened_floating(const Value& x) { return x.dtype() == DType::F64 ? x : convert(x, DType::F32); }
void native_layer_norm_row(OperatorCall& call) {
  const Value x = call.tensor("input");
  const int64_t rank = static_cast<int64_t>(call.sizes("normalized_shape").size());
  const Value y = layer_norm(x, rank, call.maybe_tensor("weight"), call.maybe_tensor("bias"), call.real("eps"));
  Dims dims;
  for (int64_t d = x.rank() - rank; d < x.rank(); ++d) dims.push_back(d);
  const MeanVariance found = moments(widened_floating(x), dims, true);
  call.results({y, found.mean, rsqrt(found.variance + call.real("eps"))});
}
void rms_norm_row(OperatorCall& call) {
  const int64_t rank = static_cast<int64_t>(call.sizes("normalized_shape").size());
  const std::optional<double> epsilon = call.has("eps") ? std::optional<double>(call.real("eps")) : std::nullopt;
  call.result(rms_norm(call.tensor("input"), rank, call.maybe_tensor("weight"), epsilon));
}
void group_norm_row(OperatorCall& call) {
  call.result(group_norm(call.tensor("input"), call.integer("num_groups"), call.maybe_tensor("weight"), call.maybe_tensor("bias"), call.real("eps", 1e-5)).result);
}
void native_group_norm_row(OperatorCall& call) {
  const GroupNorm found = group_norm(call.tensor("input"), call.integer("group"), call.maybe_tensor("weight"), call.maybe_tensor("bias"), call.real("eps"));
  call.results({found.result, found.mean, found.scale});
}

struct BatchNormCall {
  Value result, mean, scale;
  std::optional<RunningStatistics> updated;
};
BatchNormCall batch_norm_of(OperatorCall& call, bool training) {
  const Value x = call.tensor("input");
  const double epsilon = call.real("eps", 1e-5), momentum = call.real("momentum", 0.1);
  const std::optional<Value> weight = call.maybe_tensor("weight"), bias = call.maybe_tensor("bias");
  const std::optional<Value> running_mean = call.maybe_tensor("running_mean"), running_var = call.maybe_tensor("running_var");
  if (running_mean.has_value() != running_var.has_value()) call.fail("has only one of running_mean and running_var");
  const bool use_batch = training || !running_mean;
  if (!use_batch) {
    const Value y = batch_norm_evaluation(x, *running_mean, *running_var, weight, bias, epsilon);
    return {y, *running_mean, rsqrt(*running_var + epsilon), {}};
  }
  const BatchNorm found = batch_norm_training(x, weight, bias, epsilon);
  BatchNormCall made{found.result, found.mean, rsqrt(found.variance + epsilon), {}};
  if (training && running_mean) made.updated = update_running({*running_mean, *running_var}, found, x.shape(), momentum);
  return made;
}
void batch_norm_row(OperatorCall& call) {
  const bool training = call.boolean("training", false) && call.training();
  const BatchNormCall found = batch_norm_of(call, training);
  if (found.updated) {
    call.handle("running_mean").write(convert(found.updated->mean, call.handle("running_mean").value().dtype()));
    call.handle("running_var").write(convert(found.updated->variance, call.handle("running_var").value().dtype()));
  }
  call.result(found.result);
}
/// Core: the new running statistics are results.
void functional_batch_norm_row(OperatorCall& call) {
  const bool training = call.boolean("training", false) && call.training();
  const BatchNormCall found = batch_norm_of(call, training);
  call.results({found.result, found.mean, found.scale});
  if (call.has("running_mean")) call.results({found.updated ? found.updated->mean : call.tensor("running_mean"), found.updated ? found.updated->variance : call.tensor("running_var")});
}
void stateless_batch_norm_row(OperatorCall& call) {
  const BatchNormCall found = batch_norm_of(call, call.boolean("training", false) && call.training());
  call.results({found.result, found.mean, found.scale});
}
/// Running statistics are written to; the results behind the first serve PyTorch's own backward.
void native_batch_norm_row(OperatorCall& call) {
  const bool training = call.boolean("training", true) && call.training();
  const BatchNormCall found = batch_norm_of(call, training);
  if (found.updated) {
    call.handle("running_mean").write(convert(found.updated->mean, call.handle("running_mean").value().dtype()));
    call.handle("running_var").write(convert(found.updated->variance, call.handle("running_var").value().dtype()));
  }
  const Value empty = full(call.builder(), DType::F32, {Dim(0)}, 0);
  call.results({found.result, training ? found.mean : empty, training ? found.scale : empty});
  if (call.node().outputs.size() > 3) call.result(full(call.builder(), DType::U8, {Dim(0)}, 0));
}
void inference_batch_norm_row(OperatorCall& call) {
  const BatchNormCall found = batch_norm_of(call, false);
  const Value empty = full(call.builder(), DType::F32, {Dim(0)}, 0);
  call.results({found.result, empty, empty});
}
/// Running statistics are the means over the batch of those of each element, the variances unbiased.
void write_instance_statistics(OperatorCall& call, const Value& x) {
  Dims positions;
  Dim count = 1;
  for (int64_t d = 2; d < x.rank(); ++d) positions.push_back(d), count = count * x.dim(d);
  const MeanVariance found = moments(widened(stop_gradient(x)), positions);
  const double momentum = call.real("momentum", 0.1);
  const Value n = size_value(call.builder(), found.variance.dtype(), count);
  const auto update = [&](const char* name, const Value& now) {
    Tensor running = call.handle(name);
    running.write(convert(running.value() * (1 - momentum) + mean(now, {0}) * momentum, running.value().dtype()));
  };
  update("running_mean", found.mean);
  update("running_var", found.variance * (n / (n - 1.0)));
}
void instance_norm_row(OperatorCall& call) {
  const Value x = call.tensor("input");
  const double epsilon = call.real("eps", 1e-5);
  const bool has_running = call.has("running_mean");
  if (has_running && !(call.training() && call.boolean("use_input_stats", true)))
    return call.result(batch_norm_evaluation(x, call.tensor("running_mean"), call.tensor("running_var"), call.maybe_tensor("weight"), call.maybe_tensor("bias"), epsilon));
  if (has_running) write_instance_statistics(call, x);
  call.result(instance_norm(x, call.maybe_tensor("weight"), call.maybe_tensor("bias"), epsilon));
}

void dropout_row(OperatorCall& call) {
  const char* argument = call.has("input") ? "input" : "self";
  const Value x = call.tensor(argument);
  const double rate = call.real("p", 0.5);
  if (!call.boolean("train", true) || !call.training() || rate == 0) return call.alias(call.handle(argument));
  call.result(dropout(x, rate, call.key()));
}
void native_dropout_row(OperatorCall& call) {
  const Value x = call.tensor("input");
  const double rate = call.real("p", 0.5);
  if (!call.boolean("train", true) || !call.training() || rate == 0) return call.results({x, full(call.builder(), DType::Bool, x.shape(), 1)});
  const Value kept = greater_equal(random_uniform(call.key(), DType::F32, x.shape()), rate);
  call.results({where(kept, rate >= 1 ? zeros_like(x) : x / (1 - rate), zeros_like(x)), kept});
}

/// x with the leading dims of size 1 stretched to those of `other`; heads are not: fewer of them are grouped queries.
Value over_batch(const Value& x, const Value& other) {
  Shape shape = x.shape();
  if (x.rank() != other.rank()) return x;
  for (int64_t d = 0; d + 2 < x.rank(); ++d)
    if (x.dim(d) == Dim(1) && (d + 3 < x.rank() || x.rank() < 4)) shape[static_cast<size_t>(d)] = other.dim(d);
  return shape == x.shape() ? x : broadcast_to(x, shape);
}
void attention_row(OperatorCall& call) {
  const Value given = call.tensor("query"), key = over_batch(call.tensor("key"), given), value = over_batch(call.tensor("value"), key), q = over_batch(given, key);
  AttentionOptions options;
  if (call.has("attn_mask")) {
    Value mask = call.tensor("attn_mask");
    if (is_floating(mask.dtype()) && mask.dtype() != q.dtype()) mask = convert(mask, q.dtype());
    options.mask = mask;
  }
  options.causal = call.boolean("is_causal", false);
  if (call.has("scale")) options.scale = call.real("scale");
  options.dropout = call.training() ? call.real("dropout_p", 0) : 0;
  if (options.dropout > 0) options.key = call.key();
  call.result(scaled_dot_product_attention(q, key, value, options));
  // Fused forms return more, which only their own backward reads.
}
void attention_with_extras_row(OperatorCall& call) {
  attention_row(call);
  for (size_t i = 1; i < call.node().outputs.size(); ++i) call.none();
}

PoolOptions pool_options(OperatorCall& call) {
  PoolOptions options;
  options.size = call.integers("kernel_size");
  options.strides = call.integers("stride", {});
  options.padding = call.integers("padding", {0});
  options.dilation = call.integers("dilation", {1});
  options.count_include_pad = call.boolean("count_include_pad", true);
  return options;
}
template <int spatial>
void max_pool_row(OperatorCall& call) {
  call.result(batched(call, call.tensor("self"), spatial,
                      [&](const Value& x) { return max_pool_with_indices(x, pool_options(call), call.boolean("ceil_mode", false)).values; }));
}
template <int spatial>
void max_pool_indices_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  check_images(call, x, spatial);
  const MaxPooled found = max_pool_with_indices(x.rank() == spatial + 2 ? x : unsqueeze(x, 0), pool_options(call), call.boolean("ceil_mode", false));
  if (x.rank() == spatial + 2) return call.results({found.values, found.indices});
  call.results({squeeze(found.values, {0}), squeeze(found.indices, {0})});
}
template <int spatial>
void average_pool_row(OperatorCall& call) {
  call.result(batched(call, call.tensor("self"), spatial, [&](const Value& x) {
    return average_pool_mode(x, pool_options(call), call.boolean("ceil_mode", false), call.integer("divisor_override", 0));
  }));
}
std::vector<int64_t> adaptive_sizes(OperatorCall& call, const Value& x, int64_t spatial) {
  std::vector<int64_t> sizes = call.integers("output_size");
  if (sizes.size() == 1) sizes.resize(static_cast<size_t>(spatial), sizes[0]);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] >= 0) continue;
    const Dim kept = x.dim(x.rank() - spatial + static_cast<int64_t>(d));
    if (!kept.is_constant()) call.fail("wanted a constant output size, found " + kept.text());
    sizes[d] = kept.constant();
  }
  return sizes;
}
template <int spatial>
void adaptive_average_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(batched(call, x, spatial, [&](const Value& images) { return adaptive_average_pool(images, adaptive_sizes(call, x, spatial)); }));
}
template <int spatial>
void adaptive_max_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  check_images(call, x, spatial);
  const MaxPooled found = adaptive_max_pool(x.rank() == spatial + 2 ? x : unsqueeze(x, 0), adaptive_sizes(call, x, spatial));
  if (x.rank() == spatial + 2) return call.results({found.values, found.indices});
  call.results({squeeze(found.values, {0}), squeeze(found.indices, {0})});
}

template <ResizeKind kind>
void upsample_row(OperatorCall& call) {
  const Value x = call.has("input") ? call.tensor("input") : call.tensor("self");
  const int64_t spatial = x.rank() - 2;
  std::vector<double> scales = call.reals("scale_factors");
  Shape sizes;
  if (call.has("output_size")) {
    sizes = call.sizes("output_size");
    for (const char* scale : {"scales_d", "scales_h", "scales_w", "scales"})
      if (call.has(scale)) scales.push_back(call.real(scale));
  } else {
    for (int64_t d = 0; d < spatial; ++d) {
      const Dim& size = x.dim(2 + d);
      if (static_cast<size_t>(d) >= scales.size()) call.fail("has neither a size nor a factor for each dim");
      const double scale = scales[static_cast<size_t>(d)];
      if (size.is_constant())
        sizes.emplace_back(static_cast<int64_t>(std::floor(static_cast<double>(size.constant()) * scale)));
      else if (const auto scaled = scaled_size(size, scale))
        sizes.push_back(*scaled);
      else
        call.fail("the symbolic size " + size.text() + " times " + std::to_string(scale) +
                  " is no quotient of small whole numbers; give a size instead of a factor");
    }
  }
  if (scales.size() != static_cast<size_t>(spatial)) scales.clear();
  call.result(resize(x, kind, sizes, call.boolean("align_corners", false), scales));
}

}  // namespace

std::vector<NamedRow> layer_rows() {
  return {
      {"linear", linear_row}, {"matmul", matmul_row}, {"mm", matmul_row}, {"bmm", matmul_row}, {"mv", matmul_row}, {"dot", matmul_row}, {"addmm", addmm_row}, {"baddbmm", baddbmm_row},
      {"outer", outer_row}, {"ger", outer_row}, {"einsum", einsum_row},
      {"conv1d", conv_row}, {"conv2d", conv_row}, {"conv3d", conv_row}, {"conv1d.padding", conv_padding_row}, {"conv2d.padding", conv_padding_row}, {"conv3d.padding", conv_padding_row},
      {"conv_transpose1d", conv_transpose_row}, {"conv_transpose2d", conv_transpose_row}, {"conv_transpose3d", conv_transpose_row}, {"convolution", convolution_row},
      {"layer_norm", layer_norm_row}, {"native_layer_norm", native_layer_norm_row}, {"rms_norm", rms_norm_row}, {"group_norm", group_norm_row}, {"native_group_norm", native_group_norm_row},
      {"batch_norm", batch_norm_row}, {"_native_batch_norm_legit_functional", functional_batch_norm_row}, {"_native_batch_norm_legit.no_stats", stateless_batch_norm_row},
      {"_native_batch_norm_legit", native_batch_norm_row}, {"native_batch_norm", native_batch_norm_row}, {"_batch_norm_with_update", native_batch_norm_row},
      {"_native_batch_norm_legit_no_training", inference_batch_norm_row}, {"instance_norm", instance_norm_row},
      {"dropout", dropout_row}, {"native_dropout", native_dropout_row}, {"scaled_dot_product_attention", attention_row},
      {"_scaled_dot_product_flash_attention_for_cpu", attention_with_extras_row},
      {"max_pool1d", max_pool_row<1>}, {"max_pool2d", max_pool_row<2>}, {"max_pool3d", max_pool_row<3>}, {"max_pool1d_with_indices", max_pool_indices_row<1>},
      {"max_pool2d_with_indices", max_pool_indices_row<2>}, {"max_pool3d_with_indices", max_pool_indices_row<3>}, {"avg_pool1d", average_pool_row<1>}, {"avg_pool2d", average_pool_row<2>},
      {"avg_pool3d", average_pool_row<3>}, {"adaptive_avg_pool1d", adaptive_average_row<1>}, {"adaptive_avg_pool2d", adaptive_average_row<2>}, {"adaptive_avg_pool3d", adaptive_average_row<3>},
      {"_adaptive_avg_pool2d", adaptive_average_row<2>}, {"_adaptive_avg_pool3d", adaptive_average_row<3>}, {"adaptive_max_pool1d", adaptive_max_row<1>},
      {"adaptive_max_pool2d", adaptive_max_row<2>}, {"adaptive_max_pool3d", adaptive_max_row<3>},
      {"upsample_nearest1d", in_f32<upsample_row<ResizeKind::Nearest>>}, {"upsample_nearest2d", in_f32<upsample_row<ResizeKind::Nearest>>}, {"upsample_nearest3d", in_f32<upsample_row<ResizeKind::Nearest>>},
      {"_upsample_nearest_exact1d", in_f32<upsample_row<ResizeKind::NearestExact>>}, {"_upsample_nearest_exact2d", in_f32<upsample_row<ResizeKind::NearestExact>>}, {"_upsample_nearest_exact3d", in_f32<upsample_row<ResizeKind::NearestExact>>}, {"upsample_linear1d", in_f32<upsample_row<ResizeKind::Linear>>},
      {"upsample_bilinear2d", in_f32<upsample_row<ResizeKind::Linear>>}, {"upsample_trilinear3d", in_f32<upsample_row<ResizeKind::Linear>>}, {"upsample_bicubic2d", in_f32<upsample_row<ResizeKind::Cubic>>},
  };
}

}  // namespace stepgraph::pt2
