// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer as GPT-2 (Radford et al., 2019): norms first, tanh gelu, learned positions, output weights tied to the token embedding.
// Names as in its PyTorch versions: transformer.wte.weight, transformer.h.0.attn.c_attn.weight; weights are [out, in],
// or [in, out] as in the transformers library.
#pragma once
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct GptOptions {
  int64_t vocabulary = 256, context = 64, layers = 2, heads = 4, width = 64;
  double dropout = 0;
  bool bias = true;
  bool conv1d = false;  ///< weights of layers are [in, out], as those of transformers' GPT2LMHeadModel
};
/// tokens (integer) [batch, T] with T at most `context` -> logits [batch, T, vocabulary].
Value gpt(Scope s, Value tokens, const GptOptions& options = {});

}  // namespace stepgraph
