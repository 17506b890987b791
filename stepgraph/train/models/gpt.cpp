// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/gpt.h"

#include <cmath>

#include <fmt/core.h>

namespace stepgraph {
namespace {

constexpr double deviation = 0.02;

Value gpt_dense(Scope s, Value x, int64_t out, const GptOptions& options, double start = deviation) {
  if (options.conv1d) {
    const Value weight = s.parameter("weight", {x.dim(-1), out}, initialize::normal(0, start));
    std::optional<Value> bias;
    if (options.bias) bias = s.parameter("bias", {out}, initialize::zeros());
    const ScopeEntry entry = s.enter();
    return linear(x, transpose(weight, 0, 1), bias);
  }
  LinearOptions linear_options;
  linear_options.bias = options.bias;
  linear_options.weight_start = initialize::normal(0, start);
  linear_options.bias_start = initialize::zeros();
  return linear(s, x, out, linear_options);
}

Value gpt_norm(Scope s, Value x, const GptOptions& options) {
  LayerNormOptions norm_options;
  norm_options.bias = options.bias;
  return layer_norm(s, x, norm_options);
}

Value gpt_block(Scope s, Value x, const GptOptions& options) {
  // Two branches a layer end in the residual stream: their weights start smaller, so that its variance does not grow with depth.
  const double last = deviation / std::sqrt(2.0 * static_cast<double>(options.layers));
  const Scope attn = s / "attn", mlp = s / "mlp";
  const std::vector<Value> parts = split(gpt_dense(attn / "c_attn", gpt_norm(s / "ln_1", x, options), 3 * options.width, options), -1, 3);
  MultiHeadOptions heads;
  heads.heads = options.heads;
  heads.causal = true;
  heads.dropout = options.dropout;
  const Value mixed = attend(attn, parts[0], parts[1], parts[2], heads);
  x = x + dropout(attn, gpt_dense(attn / "c_proj", mixed, options.width, options, last), options.dropout);
  const Value inner = gelu(gpt_dense(mlp / "c_fc", gpt_norm(s / "ln_2", x, options), 4 * options.width, options), GeluKind::Tanh);
  return x + dropout(mlp, gpt_dense(mlp / "c_proj", inner, options.width, options, last), options.dropout);
}

}  // namespace

Value gpt(Scope s, Value tokens, const GptOptions& options) {
  if (options.layers < 0 || options.heads < 1 || options.width < 1 || options.width % options.heads != 0)
    throw UserError(fmt::format("gpt: width {} is no multiple of {} heads", options.width, options.heads));
  const Scope t = s / "transformer";
  const Value wte = (t / "wte").parameter("weight", {options.vocabulary, options.width}, initialize::normal(0, deviation));
  const Value wpe = (t / "wpe").parameter("weight", {options.context, options.width}, initialize::normal(0, deviation));
  Value x = embedding(tokens, wte) + slice(wpe, 0, 0, tokens.dim(-1));
  x = dropout(t / "drop", x, options.dropout);
  x = repeat(t / "h", options.layers, x, [&](Scope layer, Value v) { return gpt_block(layer, v, options); });
  x = gpt_norm(t / "ln_f", x, options);
  const ScopeEntry entry = (s / "lm_head").enter();
  return linear(x, wte);
}

}  // namespace stepgraph
