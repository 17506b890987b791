// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer as LLaMA (Touvron et al., 2023): root-mean-square norms first, rotary positions, grouped queries, gated feed-forward parts.
// Names as in its PyTorch versions: model.layers.0.self_attn.q_proj.weight, model.layers.0.mlp.gate_proj.weight, lm_head.weight.
#pragma once
#include <functional>
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct LlamaOptions {
  int64_t vocabulary = 256, context = 64, layers = 2, heads = 4, width = 64;
  int64_t kv_heads = 0;  ///< of keys and values; 0: as many as heads
  int64_t inner = 0;     ///< of the feed-forward part; 0: 4 * width
  double theta = 10000, epsilon = 1e-6, dropout = 0;  ///< dropout: of the attention weights
  bool tied = false;     ///< output weights are the token embedding
};
/// Of the normed values of a layer; the result is added to them.
using FeedForward = std::function<Value(Scope layer, Value x)>;
/// One layer: attention, then the feed-forward part.
Value llama_layer(Scope s, Value x, const LlamaOptions& options, const FeedForward& feed_forward);
/// Embedding, `layers` of the embedded tokens, norm and output weights.
Value llama_around(Scope s, Value tokens, const LlamaOptions& options, const std::function<Value(Scope layers, Value x)>& layers, std::string_view model = "llama");

/// tokens (integer) [batch, T] -> logits [batch, T, vocabulary].
Value llama(Scope s, Value tokens, const LlamaOptions& options = {});

}  // namespace stepgraph
