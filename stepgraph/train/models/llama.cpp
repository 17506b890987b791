// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/llama.h"

#include <fmt/core.h>

namespace stepgraph {
namespace {

Initializer llama_start() { return initialize::normal(0, 0.02); }

Value llama_dense(Scope s, Value x, int64_t out) {
  LinearOptions options;
  options.bias = false;
  options.weight_start = llama_start();
  return linear(s, x, out, options);
}

Value attention(Scope s, Value x, const LlamaOptions& options) {
  const int64_t size = options.width / options.heads, shared = options.kv_heads > 0 ? options.kv_heads : options.heads;
  const Value query = split_heads(llama_dense(s / "q_proj", x, options.width), options.heads);
  const Value key = split_heads(llama_dense(s / "k_proj", x, shared * size), shared);
  const Value value = split_heads(llama_dense(s / "v_proj", x, shared * size), shared);
  RotaryOptions rotary;
  rotary.theta = options.theta;
  AttentionOptions how;
  how.causal = true;
  if (s.training() && options.dropout != 0) how.dropout = options.dropout, how.key = s.key();
  const ScopeEntry entry = s.enter();
  const Value turned_query = rotary_embedding(query, rotary), turned_key = rotary_embedding(key, rotary);
  return llama_dense(s / "o_proj", merge_heads(scaled_dot_product_attention(turned_query, turned_key, value, how)), options.width);
}

Value gated(Scope mlp, Value x, const LlamaOptions& options) {
  const int64_t inner = options.inner > 0 ? options.inner : 4 * options.width;
  const Value gate = llama_dense(mlp / "gate_proj", x, inner), up = llama_dense(mlp / "up_proj", x, inner);
  return llama_dense(mlp / "down_proj", swiglu(gate, up), options.width);
}

}  // namespace

Value llama_layer(Scope s, Value x, const LlamaOptions& options, const FeedForward& feed_forward) {
  RmsNormOptions norm;
  norm.epsilon = options.epsilon;
  x = x + attention(s / "self_attn", rms_norm(s / "input_layernorm", x, norm), options);
  return x + feed_forward(s, rms_norm(s / "post_attention_layernorm", x, norm));
}

Value llama_around(Scope s, Value tokens, const LlamaOptions& options, const std::function<Value(Scope layers, Value x)>& layers, std::string_view name) {
  if (options.layers < 0 || options.heads < 1 || options.width < 1 || options.width % (2 * options.heads) != 0)
    throw UserError(fmt::format("{}: width {} is no multiple of twice {} heads", name, options.width, options.heads));
  if (options.kv_heads < 0 || (options.kv_heads > 0 && options.heads % options.kv_heads != 0))
    throw UserError(fmt::format("{}: {} heads are no multiple of {} key heads", name, options.heads, options.kv_heads));
  const Scope model = s / "model";
  const Value words = (model / "embed_tokens").parameter("weight", {options.vocabulary, options.width}, llama_start());
  Value x = embedding(tokens, words);
  x = layers(model / "layers", x);
  RmsNormOptions norm;
  norm.epsilon = options.epsilon;
  x = rms_norm(model / "norm", x, norm);
  if (!options.tied) return llama_dense(s / "lm_head", x, options.vocabulary);
  const ScopeEntry entry = (s / "lm_head").enter();
  return linear(x, words);
}

Value llama(Scope s, Value tokens, const LlamaOptions& options) {
  const auto feed_forward = [&](Scope layer, Value x) { return gated(layer / "mlp", x, options); };
  return llama_around(s, tokens, options, [&](Scope layers, Value x) {
    return repeat(layers, options.layers, x, [&](Scope layer, Value v) { return llama_layer(layer, v, options, feed_forward); });
  });
}

}  // namespace stepgraph
