// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/layers.h"

#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/place.h"

namespace stepgraph {
namespace {

/// What a layer opens: nodes carry its path, and the line of the user who called it.
struct LayerScope {
  LayerScope(const Scope& s, const Value& x, const std::source_location& location) : place(x, location), entry(s.enter()) {}
  PlaceScope place;
  ScopeEntry entry;
};

/// A size that a parameter takes its shape from.
int64_t constant_size(const Scope& s, const char* layer, const Value& x, int64_t dim) {
  const Dim& size = x.dim(dim);
  if (!size.is_constant())
    fail(s.builder(), fmt::format("{}: {} of {} sets the shape of a parameter, so it must be constant", layer, size.text(), text(x.type())));
  return size.constant();
}

void check_rank(const Scope& s, const char* layer, const Value& x, int64_t rank, const char* wanted) {
  if (x.rank() < rank) fail(s.builder(), fmt::format("{}: found {}, wanted {}", layer, text(x.type()), wanted));
}

void check_count(const Scope& s, const char* layer, const char* what, int64_t count) {
  if (count < 1) fail(s.builder(), fmt::format("{}: {} is {}, wanted at least 1", layer, what, count));
}

/// One number for every spatial dim, or one each.
std::vector<int64_t> spread(const Scope& s, const char* what, const std::vector<int64_t>& values, int64_t count) {
  if (static_cast<int64_t>(values.size()) == count) return values;
  if (values.size() != 1) fail(s.builder(), fmt::format("conv: {} has {} numbers for {} spatial dims", what, values.size(), count));
  return std::vector<int64_t>(static_cast<size_t>(count), values[0]);
}

}  // namespace

Value linear(Scope s, Value x, int64_t out, const LinearOptions& options, std::source_location location) {
  const LayerScope layer(s, x, location);
  check_rank(s, "linear", x, 1, "[..., in]");
  check_count(s, "linear", "out", out);
  const int64_t in = constant_size(s, "linear", x, -1);
  const Initializer start = initialize::kaiming_uniform(in);
  const Value weight = s.parameter("weight", {out, in}, options.weight_start.value_or(start), s.parameter_dtype(x), location);
  std::optional<Value> bias;
  if (options.bias) bias = s.parameter("bias", {out}, options.bias_start.value_or(start), s.parameter_dtype(x), location);
  return linear(x, weight, bias);
}

Value conv(Scope s, Value x, int64_t out, const ConvOptions& options, std::source_location location) {
  const LayerScope layer(s, x, location);
  check_rank(s, "conv", x, 3, "[batch, channels, spatial...]");
  check_count(s, "conv", "out", out);
  const int64_t in = constant_size(s, "conv", x, 1), spatial = x.rank() - 2;
  if (options.groups < 1 || in % options.groups != 0 || out % options.groups != 0)
    fail(s.builder(), fmt::format("conv: {} groups do not divide {} channels in and {} out", options.groups, in, out));
  Shape shape{out, in / options.groups};
  int64_t fan_in = in / options.groups;
  for (int64_t size : spread(s, "kernel", options.kernel, spatial)) {
    check_count(s, "conv", "kernel", size);
    shape.push_back(size);
    fan_in *= size;
  }
  const Initializer start = initialize::kaiming_uniform(fan_in);
  const Value weight = s.parameter("weight", shape, options.weight_start.value_or(start), s.parameter_dtype(x), location);
  ConvolutionOptions window;
  window.strides = spread(s, "stride", options.stride, spatial);
  window.padding = spread(s, "padding", options.padding, spatial);
  window.dilation = spread(s, "dilation", options.dilation, spatial);
  window.groups = options.groups;
  std::optional<Value> bias;
  if (options.bias) bias = s.parameter("bias", {out}, options.bias_start.value_or(start), s.parameter_dtype(x), location);
  return convolution(x, weight, window, bias);
}

Value conv_transpose(Scope s, Value x, int64_t out, const ConvOptions& options, std::source_location location) {
  const LayerScope layer(s, x, location);
  check_rank(s, "conv_transpose", x, 3, "[batch, channels, spatial...]");
  check_count(s, "conv_transpose", "out", out);
  const int64_t in = constant_size(s, "conv_transpose", x, 1), spatial = x.rank() - 2;
  if (options.groups < 1 || in % options.groups != 0 || out % options.groups != 0)
    fail(s.builder(), fmt::format("conv_transpose: {} groups do not divide {} channels in and {} out", options.groups, in, out));
  Shape shape{in, out / options.groups};
  int64_t fan = out / options.groups;  // PyTorch counts the second dim of the weight
  for (int64_t size : spread(s, "kernel", options.kernel, spatial)) {
    check_count(s, "conv_transpose", "kernel", size);
    shape.push_back(size);
    fan *= size;
  }
  const Initializer start = initialize::kaiming_uniform(fan);
  const Value weight = s.parameter("weight", shape, options.weight_start.value_or(start), s.parameter_dtype(x), location);
  ConvolutionOptions window;
  window.strides = spread(s, "stride", options.stride, spatial);
  window.padding = spread(s, "padding", options.padding, spatial);
  window.dilation = spread(s, "dilation", options.dilation, spatial);
  window.groups = options.groups;
  std::optional<Value> bias;
  if (options.bias) bias = s.parameter("bias", {out}, options.bias_start.value_or(start), s.parameter_dtype(x), location);
  return convolution_transpose(x, weight, window, {}, bias);
}

Value embedding(Scope s, Value indices, int64_t count, int64_t width, const EmbeddingOptions& options, std::source_location location) {
  const LayerScope layer(s, indices, location);
  check_count(s, "embedding", "count", count);
  check_count(s, "embedding", "width", width);
  return embedding(indices, s.parameter("weight", {count, width}, options.start, DType::F32, location));
}

Value layer_norm(Scope s, Value x, const LayerNormOptions& options, std::source_location location) {
  const LayerScope layer(s, x, location);
  if (options.normalized_rank < 1 || options.normalized_rank > x.rank())
    fail(s.builder(), fmt::format("layer_norm: normalized rank {} is out of range for {}", options.normalized_rank, text(x.type())));
  Shape shape;
  for (int64_t d = -options.normalized_rank; d < 0; ++d) shape.push_back(constant_size(s, "layer_norm", x, d));
  std::optional<Value> weight, bias;
  if (options.weight) weight = s.parameter("weight", shape, initialize::ones(), s.parameter_dtype(x), location);
  if (options.bias) bias = s.parameter("bias", shape, initialize::zeros(), s.parameter_dtype(x), location);
  return layer_norm(x, options.normalized_rank, weight, bias, options.epsilon);
}

Value rms_norm(Scope s, Value x, const RmsNormOptions& options, std::source_location location) {
  const LayerScope layer(s, x, location);
  if (options.normalized_rank < 1 || options.normalized_rank > x.rank())
    fail(s.builder(), fmt::format("rms_norm: normalized rank {} is out of range for {}", options.normalized_rank, text(x.type())));
  Shape shape;
  for (int64_t d = -options.normalized_rank; d < 0; ++d) shape.push_back(constant_size(s, "rms_norm", x, d));
  std::optional<Value> weight;
  if (options.weight) weight = s.parameter("weight", shape, initialize::ones(), s.parameter_dtype(x), location);
  return rms_norm(x, options.normalized_rank, weight, options.epsilon);
}

Value group_norm(Scope s, Value x, int64_t groups, const GroupNormOptions& options, std::source_location location) {
  const LayerScope layer(s, x, location);
  check_rank(s, "group_norm", x, 2, "[batch, channels, ...]");
  const Shape channels{constant_size(s, "group_norm", x, 1)};
  std::optional<Value> weight, bias;
  if (options.affine) {
    weight = s.parameter("weight", channels, initialize::ones(), s.parameter_dtype(x), location);
    bias = s.parameter("bias", channels, initialize::zeros(), s.parameter_dtype(x), location);
  }
  return group_norm(x, groups, weight, bias, options.epsilon).result;
}

Value batch_norm(Scope s, Value x, const BatchNormOptions& options, std::source_location location) {
  const LayerScope layer(s, x, location);
  check_rank(s, "batch_norm", x, 2, "[batch, channels, ...]");
  const Shape channels{constant_size(s, "batch_norm", x, 1)};
  // Statistics of f16 and bf16 activations are kept in f32.
  const DType state = wide_dtype(x.dtype());
  std::optional<Value> weight, bias;
  if (options.affine) {
    weight = s.parameter("weight", channels, initialize::ones(), s.parameter_dtype(x), location);
    bias = s.parameter("bias", channels, initialize::zeros(), s.parameter_dtype(x), location);
  }
  const RunningStatistics running{s.buffer("running_mean", channels, initialize::zeros(), state, location),
                                  s.buffer("running_var", channels, initialize::ones(), state, location)};
  const Value tracked = s.buffer("num_batches_tracked", {}, initialize::zeros(), DType::I64, location);
  if (!s.training()) return batch_norm_evaluation(x, running.mean, running.variance, weight, bias, options.epsilon);
  const BatchNorm batch = batch_norm_training(x, weight, bias, options.epsilon);
  const RunningStatistics next = update_running(running, batch, x.shape(), options.momentum);
  s.set_buffer("running_mean", next.mean, location);
  s.set_buffer("running_var", next.variance, location);
  s.set_buffer("num_batches_tracked", tracked + ones_like(tracked), location);
  return batch.result;
}

Value dropout(Scope s, Value x, double rate, std::source_location location) {
  const LayerScope layer(s, x, location);
  if (!(rate >= 0 && rate <= 1)) fail(s.builder(), fmt::format("dropout: rate {} is outside [0, 1]", rate));
  return s.training() && rate != 0 ? dropout(x, rate, s.key()) : x;
}

Value attend(Scope s, Value query, Value key, Value value, const MultiHeadOptions& options, std::source_location location) {
  const LayerScope layer(s, query, location);
  AttentionOptions attention;
  attention.causal = options.causal;
  attention.mask = options.mask;
  if (s.training() && options.dropout != 0) {
    attention.dropout = options.dropout;
    attention.key = s.key();
  }
  const auto apart = [&](const Value& x) { return split_heads(x, options.heads); };
  return merge_heads(scaled_dot_product_attention(apart(query), apart(key), apart(value), attention));
}

Value multi_head_attention(Scope s, Value x, const MultiHeadOptions& options, std::source_location location) {
  const LayerScope layer(s, x, location);
  check_rank(s, "multi_head_attention", x, 3, "[batch, sequence, width]");
  const int64_t width = constant_size(s, "multi_head_attention", x, -1);
  // Xavier's bound for the three square matrices taken as one, as PyTorch does (Glorot, Bengio, 2010).
  const double bound = std::sqrt(6.0 / static_cast<double>(4 * width));
  const Value weight = s.parameter("in_proj_weight", {3 * width, width}, initialize::uniform(-bound, bound), s.parameter_dtype(x), location);
  std::optional<Value> bias;
  if (options.bias) bias = s.parameter("in_proj_bias", {3 * width}, initialize::zeros(), s.parameter_dtype(x), location);
  const std::vector<Value> parts = split(linear(x, weight, bias), -1, 3);
  const Value mixed = attend(s, parts[0], parts[1], parts[2], options, location);
  LinearOptions out;
  out.bias = options.bias;
  out.bias_start = initialize::zeros();
  return linear(s / "out_proj", mixed, width, out, location);
}

Loss cross_entropy(Value logits, Value targets, const CrossEntropyOptions& options, std::source_location location) {
  const PlaceScope place(logits, location);
  const LossSum loss = cross_entropy_sum(logits, targets, options);
  const LossSum right = accuracy_sum(logits, targets, options);
  return Loss(loss.numerator, loss.denominator).metric("accuracy", right.numerator, right.denominator);
}

Loss mse_loss(Value prediction, Value target, std::source_location location) {
  const PlaceScope place(prediction, location);
  const LossSum loss = mse_sum(prediction, target);
  return {loss.numerator, loss.denominator};
}

}  // namespace stepgraph
