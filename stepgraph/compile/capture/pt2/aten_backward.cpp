// SPDX-License-Identifier: Apache-2.0
// Backward operators, as programs that hold their gradients (joint programs) have them, and those that take gradients of gradients. Where the operator takes the operands of its forward one, its value
// is the gradient of our forward one; where it takes the result instead, it is PyTorch's formula.
#include <algorithm>
#include <cmath>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/attention.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/composite/losses.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// Gradients of `y` along `seed` with respect to `xs`; zeros where there is none.
std::vector<Value> pulled_back(const Value& y, const Value& seed, const std::vector<Value>& xs) {
  const std::optional<Value> start = convert(broadcast_to(seed, y.shape()), y.dtype());
  const auto found = gradients(*y.builder, std::span<const Value>(&y, 1), std::span<const std::optional<Value>>(&start, 1), xs);
  std::vector<Value> result;
  for (size_t i = 0; i < xs.size(); ++i) result.push_back(found[i] ? *found[i] : zeros_like(xs[i]));
  return result;
}
Value pulled_back(const Value& y, const Value& seed, const Value& x) { return pulled_back(y, seed, std::vector<Value>{x})[0]; }
using Values = std::vector<Value>;
/// Gradients of f(operands) along `seed`, each with the other operands held fixed: in a graph of their own, where an operand that is computed from another one,
/// or is the same value, is not followed back. The graph as a whole has gradients again, for all operands and the seed.
template <class F>
Values partials(const std::string& tag, Values operands, const Value& seed, F&& f) {
  operands.push_back(seed);
  return composite(*seed.builder, tag, operands, [&](Builder&, Values in) {
    const Value inner_seed = in.back();
    in.pop_back();
    return pulled_back(f(in), inner_seed, in);
  });
}
Value gradient(const OperatorCall& call) { return call.tensor(call.has("grad_output") ? "grad_output" : call.has("grad_out") ? "grad_out" : "grad"); }
/// The first result of the operator of that name with this call's arguments.
Value forward(OperatorCall& call, const std::string& name) {
  const Row row = find_row("torch.ops.aten." + name);
  SG_CHECK(row != nullptr, "there is no row for " + name);
  row(call);
  const Value result = std::get<Tensor>(call.outputs().at(0)).value();
  call.outputs().clear();
  return result;
}

struct Name {
  template <size_t size>
  consteval Name(const char (&given)[size]) {  // NOLINT: a literal is meant
    std::copy_n(given, size, text);
  }
  char text[40] = {};
};
/// For operators of one floating tensor `self` that take the forward operator's other arguments by its names.
template <Name name>
void of_forward(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(pulled_back(forward(call, name.text), gradient(call), x));
}

// ---- element-wise

void threshold_backward_row(OperatorCall& call) {
  const Value x = call.tensor("self"), g = gradient(call);
  call.result(where(less_equal(x, call.real("threshold")), zeros_like(g), g));
}
void sigmoid_backward_row(OperatorCall& call) {
  const Value y = call.tensor("output");
  call.result(gradient(call) * (1.0 - y) * y);
}
void tanh_backward_row(OperatorCall& call) {
  const Value y = call.tensor("output");
  call.result(gradient(call) * (1.0 - y * y));
}
void elu_backward_row(OperatorCall& call) {
  const Value g = gradient(call), x = call.tensor("self_or_result");
  const double alpha = call.real("alpha"), scale = call.real("scale"), input_scale = call.real("input_scale");
  const Value slope = call.boolean("is_result") ? (x + alpha * scale) * input_scale : exp(x * input_scale) * (input_scale * alpha * scale);
  call.result(where(less_equal(x, 0.0), g * slope, g * scale));
}
void dropout_backward_row(OperatorCall& call) {
  const Value g = gradient(call);
  call.result(g * convert(call.tensor("mask"), g.dtype()) * call.real("scale"));
}

/// The weight's gradient of each element: PyTorch adds them up in a node of its own.
void prelu_backward_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.results(partials("prelu_backward", {x, broadcast_to(call.tensor("weight"), x.shape())}, gradient(call),
                        [](const Values& in) { return where(greater(in[0], 0.0), in[0], in[1] * in[0]); }));
}

// ---- losses

template <class F>
void loss_backward(OperatorCall& call, const std::string& tag, F&& losses) {
  const Value x = call.tensor("self"), target = convert(call.tensor("target"), x.dtype());
  const int64_t reduction = call.integer("reduction", 1);
  call.result(partials(tag, {x, target}, gradient(call), [&](const Values& in) {
    const Value all = losses(in[0], in[1]);
    return reduction == 0 || all.rank() == 0 ? all : reduction == 1 ? mean(all) : sum(all);
  })[0]);
}
void mse_backward_row(OperatorCall& call) {
  loss_backward(call, "mse_backward", [](const Value& x, const Value& t) { return (x - t) * (x - t); });
}
void smooth_l1_backward_row(OperatorCall& call) {
  const double beta = call.real("beta", 1);
  loss_backward(call, "smooth_l1_backward", [beta](const Value& x, const Value& t) {
    const Value error = abs(x - t);
    return beta == 0 ? error : where(less(error, beta), error * error * (0.5 / beta), error - 0.5 * beta);
  });
}
void huber_backward_row(OperatorCall& call) {
  loss_backward(call, "huber_backward", [&](const Value& x, const Value& t) { return huber_losses(x, t, call.real("delta", 1)); });
}
void soft_margin_backward_row(OperatorCall& call) {
  loss_backward(call, "soft_margin_backward", [](const Value& x, const Value& t) { return log1p(exp(neg(x * t))); });
}
void binary_cross_entropy_backward_row(OperatorCall& call) {
  const Value x = call.tensor("self"), target = convert(call.tensor("target"), x.dtype());
  Value slope = (x - target) / maximum((1.0 - x) * x, full_like(x, 1e-12));
  if (call.has("weight")) slope = slope * call.tensor("weight");
  if (call.integer("reduction", 1) == 1) slope = slope / size_value(call.builder(), x.dtype(), element_count(x.shape()));
  call.result(gradient(call) * slope);
}

// ---- softmax and normalisations

Value as_input(const OperatorCall& call, const Value& value) { return convert(value, call.dtype("input_dtype").value_or(value.dtype())); }
void softmax_backward_row(OperatorCall& call) {
  const Value g = gradient(call), y = call.tensor("output");
  const int64_t dim = call.wrap(call.integer("dim"), y.rank());
  const Value product = g * y;
  call.result(as_input(call, product - y * (y.rank() == 0 ? product : sum(product, {dim}, true))));
}
void log_softmax_backward_row(OperatorCall& call) {
  const Value g = gradient(call), y = call.tensor("output");
  const int64_t dim = call.wrap(call.integer("dim"), y.rank());
  call.result(as_input(call, g - exp(y) * (y.rank() == 0 ? g : sum(g, {dim}, true))));
}

struct Normalised {
  Value input, weight, bias;  // gradients
};
/// x_hat = (x - mean) * scale, y = x_hat * weight + bias: statistics over `dims`, weights over all but `kept`. All of one shape, in f32 at least.
Normalised normalised_backward(const Value& g, const Value& x, const Value& mean_of_x, const Value& scale, const Value& weight, const Dims& dims, const Dims& reduced) {
  const Value hat = (x - mean_of_x) * scale, weighted = g * weight;
  const Value input = (weighted - mean(weighted, dims, true) - hat * mean(weighted * hat, dims, true)) * scale;
  return {input, sum(g * hat, reduced), sum(g, reduced)};
}
Value wide(const Value& x) { return x.dtype() == DType::F64 ? x : convert(x, DType::F32); }
/// Gradients as results: those that the program does not read are of no kind.
void norm_results(OperatorCall& call, const Value& x, const Normalised& found) {
  const std::optional<Value> weight = call.maybe_tensor("weight");
  const DType dtype = weight ? weight->dtype() : x.dtype();
  call.results({convert(found.input, x.dtype()), convert(found.weight, dtype), convert(found.bias, dtype)});
}
void layer_norm_backward_row(OperatorCall& call) {
  const Value x = call.tensor("input");
  const int64_t normalised = static_cast<int64_t>(call.sizes("normalized_shape").size());
  Dims inner, outer;
  for (int64_t d = 0; d < x.rank(); ++d) (d < x.rank() - normalised ? outer : inner).push_back(d);
  const Value weight = call.has("weight") ? wide(call.tensor("weight")) : scalar(call.builder(), wide(x).dtype(), 1);
  norm_results(call, x, normalised_backward(wide(gradient(call)), wide(x), wide(call.tensor("mean")), wide(call.tensor("rstd")), weight, inner, outer));
}
/// A value for each channel, beside x [N, C, ...].
Value by_channel(const Value& v, const Value& x) {
  Shape shape(static_cast<size_t>(x.rank()), Dim(1));
  shape[1] = x.dim(1);
  return reshape(v, shape);
}
void batch_norm_backward_row(OperatorCall& call) {
  const Value x = call.tensor("input"), g = wide(gradient(call));
  Dims all;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != 1) all.push_back(d);
  const Value weight = call.has("weight") ? by_channel(wide(call.tensor("weight")), x) : scalar(call.builder(), g.dtype(), 1);
  if (call.boolean("train") && (call.training() || !call.has("running_var")))
    return norm_results(call, x, normalised_backward(g, wide(x), by_channel(wide(call.tensor("save_mean")), x), by_channel(wide(call.tensor("save_invstd")), x), weight, all, all));
  const Value scale = by_channel(rsqrt(wide(call.tensor("running_var")) + call.real("eps")), x);
  const Value hat = (wide(x) - by_channel(wide(call.tensor("running_mean")), x)) * scale;
  norm_results(call, x, {g * weight * scale, sum(g * hat, all), sum(g, all)});
}
void group_norm_backward_row(OperatorCall& call) {
  const Value x = call.tensor("input"), g = wide(gradient(call));
  const int64_t groups = call.integer("group");
  const Dim channels = x.dim(1);
  // [N, groups, channels of a group, positions]
  const Shape split{x.dim(0), Dim(groups), Dim(channels.constant() / groups), call.size("HxW")};
  auto statistic = [&](const char* name) { return reshape(wide(call.tensor(name)), {x.dim(0), Dim(groups), Dim(1), Dim(1)}); };
  const Value weight = call.has("weight") ? reshape(wide(call.tensor("weight")), {Dim(1), split[1], split[2], Dim(1)}) : scalar(call.builder(), g.dtype(), 1);
  Normalised found = normalised_backward(reshape(g, split), reshape(wide(x), split), statistic("mean"), statistic("rstd"), weight, {2, 3}, {0, 3});
  found.input = reshape(found.input, x.shape());
  found.weight = reshape(found.weight, {channels});
  found.bias = reshape(found.bias, {channels});
  norm_results(call, x, found);
}

// ---- products, attention

void convolution_backward_row(OperatorCall& call) {
  const Value x = call.tensor("input"), weight = call.tensor("weight"), g = gradient(call);
  const bool has_batch = x.rank() == weight.rank();
  Dims positions;
  for (int64_t d = 0; d < g.rank(); ++d)
    if (d != (has_batch ? 1 : 0)) positions.push_back(d);
  const ConvolutionOptions options{call.integers("stride", {1}), call.integers("padding", {0}), call.integers("dilation", {1}), call.integer("groups", 1)};
  const Values found = partials("convolution_backward", {x, weight}, g, [&](const Values& in) {
    const Value images = has_batch ? in[0] : unsqueeze(in[0], 0);
    const Value y = call.boolean("transposed", false) ? convolution_transpose(images, in[1], options, call.integers("output_padding", {})) : convolution(images, in[1], options);
    return has_batch ? y : squeeze(y, {0});
  });
  call.results({found[0], found[1], sum(g, positions)});
}
/// From query, key and value alone: the log-sum-exp that the program hands over may be another number (that of the decomposed forward operator).
void attention_backward_row(OperatorCall& call) {
  if (call.training() && call.real("dropout_p", 0) != 0) call.fail("fused attention with dropout: export and trace under sdpa_kernel(SDPBackend.MATH)");
  Values operands{call.tensor("query"), call.tensor("key"), call.tensor("value")};
  const char* mask = call.has("attn_mask") ? "attn_mask" : call.has("attn_bias") ? "attn_bias" : nullptr;
  if (mask) operands.push_back(call.tensor(mask));
  if (mask && is_floating(operands[3].dtype())) operands[3] = convert(operands[3], operands[0].dtype());
  Values found = partials("attention_backward", operands, gradient(call), [&](const Values& in) {
    AttentionOptions options;
    if (mask) options.mask = in[3];
    options.causal = call.boolean("is_causal", false);
    if (call.has("scale")) options.scale = call.real("scale");
    return scaled_dot_product_attention(in[0], in[1], in[2], options);
  });
  found.resize(3, found[0]);
  call.results(found);
}

// ---- rows and windows

void embedding_backward_row(OperatorCall& call) {
  if (call.boolean("scale_grad_by_freq", false)) call.fail("scale_grad_by_freq is not supported");
  Value g = gradient(call);
  const Value indices = call.tensor("indices");
  const int64_t padding = call.integer("padding_idx", -1);
  if (padding >= 0) g = where(broadcast_to(unsqueeze(equal(indices, static_cast<double>(padding)), -1), g.shape()), zeros_like(g), g);
  call.result(index_add(full(call.builder(), g.dtype(), {call.size("num_weights"), g.dim(-1)}, 0), 0, indices, g));
}
void embedding_bag_backward_row(OperatorCall& call) {
  if (call.boolean("scale_grad_by_freq", false)) call.fail("scale_grad_by_freq is not supported");
  const Value g = gradient(call), offsets = call.tensor("offsets");
  const int64_t mode = call.integer("mode"), padding = call.integer("padding_idx", -1);
  if (mode > 1) call.fail("bags of maxima are not supported");
  // Bags are linear in the table: any table will do.
  const Value table = full(call.builder(), g.dtype(), {call.size("num_weights"), g.dim(1)}, 0);
  const bool has_end = offsets.dim(0) == g.dim(0) + 1;
  const Value bags = embedding_bag(table, call.tensor("indices"), offsets, mode == 0 ? BagKind::Sum : BagKind::Mean, call.maybe_tensor("per_sample_weights"), has_end,
                                   padding >= 0 ? std::optional<int64_t>(padding) : std::nullopt);
  call.result(pulled_back(bags, g, table));
}
/// Zeros of `sizes` with g at start, start + step, ... of `dim`.
Value spread(OperatorCall& call, const Value& g, const Shape& sizes, int64_t dim, const Dim& start, int64_t step) {
  const auto d = static_cast<size_t>(dim);
  if (g.shape()[d] == Dim(0)) return full(call.builder(), g.dtype(), sizes, 0);
  Pad op{Shape(sizes.size(), Dim(0)), Shape(sizes.size(), Dim(0)), std::vector<int64_t>(sizes.size(), 0)};
  op.low[d] = start;
  op.high[d] = sizes[d] - start - ((g.shape()[d] - 1) * step + 1);
  op.interior[d] = step - 1;
  return call.builder().emit_one(op, {g, scalar(call.builder(), g.dtype(), 0)});
}
Dim from_front(const OperatorCall& call, const Dim& position, const Dim& size) {
  const SymbolTable& symbols = call.builder().module().symbols;
  if (!position.is_constant()) return symbols.simplify(min(position, size));
  if (position.constant() < 0) return symbols.simplify(max(Dim(0), size + position));
  return position.constant() == 0 ? position : symbols.simplify(min(position, size));
}
void slice_backward_row(OperatorCall& call) {
  const Shape sizes = call.sizes("input_sizes");
  const int64_t dim = call.wrap(call.integer("dim"), static_cast<int64_t>(sizes.size()));
  const Dim start = from_front(call, call.has("start") ? call.size("start") : Dim(0), sizes[static_cast<size_t>(dim)]);
  call.result(spread(call, gradient(call), sizes, dim, start, call.integer("step", 1)));
}
void select_backward_row(OperatorCall& call) {
  const Shape sizes = call.sizes("input_sizes");
  const int64_t dim = call.wrap(call.integer("dim"), static_cast<int64_t>(sizes.size()));
  call.result(spread(call, unsqueeze(gradient(call), dim), sizes, dim, from_front(call, call.size("index"), sizes[static_cast<size_t>(dim)]), 1));
}
/// Only where the strides are those of the whole tensor, in row-major order.
void as_strided_scatter_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Shape sizes = call.sizes("size"), strides = call.sizes("stride");
  if (!are_dense(call, x, sizes, strides)) call.fail("strides " + text(strides) + " of sizes " + text(sizes) + " over " + text(x.shape()) + " are not supported");
  call.result(convert(reshape(call.tensor("src"), x.shape()), x.dtype()));
}
void adaptive_average_backward_row(OperatorCall& call) {
  const Value x = call.tensor("self"), g = gradient(call);
  const int64_t spatial = x.rank() > 2 && g.rank() > 2 ? std::min<int64_t>(x.rank() - 2, 3) : 1;
  std::vector<int64_t> sizes;
  for (int64_t d = g.rank() - spatial; d < g.rank(); ++d) sizes.push_back(g.dim(d).constant());
  call.result(pulled_back(adaptive_average_pool(x, sizes), g, x));
}
template <Name mode>
void pad_backward_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const std::vector<int64_t> amounts = call.integers("padding");
  Shape low(static_cast<size_t>(x.rank()), Dim(0)), high = low;
  for (size_t i = 0; i + 1 < amounts.size() && i / 2 < low.size(); i += 2) {
    low[low.size() - 1 - i / 2] = amounts[i];  // from the last dim on
    high[low.size() - 1 - i / 2] = amounts[i + 1];
  }
  call.result(pulled_back(pad_mode(x, low, high, mode.text), gradient(call), x));
}
template <ResizeKind kind>
void upsample_backward_row(OperatorCall& call) {
  const Value g = gradient(call);
  const Value x = full(call.builder(), g.dtype(), call.sizes("input_size"), 0);  // resampling is linear
  const int64_t spatial = x.rank() - 2;
  std::vector<double> scales = call.reals("scale_factors");
  for (const char* scale : {"scales_d", "scales_h", "scales_w", "scales"})
    if (call.has(scale)) scales.push_back(call.real(scale));
  if (scales.size() != static_cast<size_t>(spatial)) scales.clear();
  const Shape sizes(g.shape().begin() + 2, g.shape().end());
  call.result(pulled_back(resize(x, kind, sizes, call.boolean("align_corners", false), scales), g, x));
}

}  // namespace

std::vector<NamedRow> backward_rows() {
  return {
      {"threshold_backward", threshold_backward_row}, {"sigmoid_backward", in_f32<sigmoid_backward_row>}, {"tanh_backward", in_f32<tanh_backward_row>}, {"elu_backward", in_f32<elu_backward_row>},
      {"native_dropout_backward", dropout_backward_row}, {"gelu_backward", of_forward<"gelu">}, {"silu_backward", of_forward<"silu">}, {"mish_backward", of_forward<"mish">},
      {"hardswish_backward", of_forward<"hardswish">}, {"hardsigmoid_backward", of_forward<"hardsigmoid">}, {"hardtanh_backward", of_forward<"hardtanh">},
      {"leaky_relu_backward", of_forward<"leaky_relu">}, {"softplus_backward", of_forward<"softplus">}, {"log_sigmoid_backward", of_forward<"log_sigmoid">},
      {"glu_backward", of_forward<"glu">}, {"logit_backward", of_forward<"logit">}, {"hardshrink_backward", of_forward<"hardshrink">}, {"softshrink_backward", of_forward<"softshrink">},
      {"_prelu_kernel_backward", in_f32<prelu_backward_row>}, {"multi_margin_loss_backward", of_forward<"multi_margin_loss">}, {"reflection_pad1d_backward", pad_backward_row<"reflect">},
      {"reflection_pad2d_backward", pad_backward_row<"reflect">}, {"reflection_pad3d_backward", pad_backward_row<"reflect">}, {"replication_pad1d_backward", pad_backward_row<"replicate">},
      {"replication_pad2d_backward", pad_backward_row<"replicate">}, {"replication_pad3d_backward", pad_backward_row<"replicate">},
      {"_softmax_backward_data", in_f32<softmax_backward_row>}, {"_log_softmax_backward_data", in_f32<log_softmax_backward_row>}, {"native_layer_norm_backward", layer_norm_backward_row},
      {"native_batch_norm_backward", batch_norm_backward_row}, {"native_group_norm_backward", group_norm_backward_row}, {"convolution_backward", convolution_backward_row},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward_row}, {"_scaled_dot_product_flash_attention_backward", attention_backward_row},
      {"_scaled_dot_product_efficient_attention_backward", attention_backward_row}, {"mse_loss_backward", in_f32<mse_backward_row>},
      {"smooth_l1_loss_backward", in_f32<smooth_l1_backward_row>}, {"huber_loss_backward", in_f32<huber_backward_row>}, {"nll_loss_backward", of_forward<"nll_loss">},
      {"nll_loss2d_backward", of_forward<"nll_loss2d">}, {"binary_cross_entropy_backward", in_f32<binary_cross_entropy_backward_row>}, {"soft_margin_loss_backward", in_f32<soft_margin_backward_row>},
      {"embedding_dense_backward", embedding_backward_row}, {"embedding_backward", embedding_backward_row}, {"_embedding_bag_backward", embedding_bag_backward_row}, {"_embedding_bag_dense_backward", embedding_bag_backward_row},
      {"as_strided_scatter", as_strided_scatter_row}, {"slice_backward", slice_backward_row}, {"select_backward", select_backward_row}, {"max_pool2d_with_indices_backward", of_forward<"max_pool2d_with_indices">},
      {"max_pool3d_with_indices_backward", of_forward<"max_pool3d_with_indices">}, {"avg_pool2d_backward", of_forward<"avg_pool2d">}, {"avg_pool3d_backward", of_forward<"avg_pool3d">},
      {"_adaptive_avg_pool2d_backward", adaptive_average_backward_row}, {"_adaptive_avg_pool3d_backward", adaptive_average_backward_row},
      {"upsample_nearest3d_backward", upsample_backward_row<ResizeKind::Nearest>}, {"upsample_linear1d_backward", upsample_backward_row<ResizeKind::Linear>},
      {"upsample_trilinear3d_backward", upsample_backward_row<ResizeKind::Linear>}, {"upsample_nearest1d_backward", upsample_backward_row<ResizeKind::Nearest>}, {"upsample_nearest2d_backward", upsample_backward_row<ResizeKind::Nearest>},
      {"upsample_bilinear2d_backward", upsample_backward_row<ResizeKind::Linear>}, {"upsample_bicubic2d_backward", upsample_backward_row<ResizeKind::Cubic>},
  };
}

}  // namespace stepgraph::pt2
