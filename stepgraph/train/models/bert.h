// SPDX-License-Identifier: Apache-2.0
// A bidirectional encoder as BERT (Devlin et al., 2018): norms after each branch, exact gelu, and the masked-token head over all positions, tied to the
// word embedding. Names as in its PyTorch versions: bert.encoder.layer.0.attention.self.query.weight, cls.predictions.transform.dense.weight.
#pragma once
#include <optional>
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

struct BertOptions {
  int64_t vocabulary = 256, context = 64, layers = 2, heads = 4, width = 64;
  int64_t inner = 0;  ///< of the feed-forward part; 0: 4 * width
  double dropout = 0.1;
};
/// tokens (integer) [batch, T] -> logits [batch, T, vocabulary]. attention_mask: bool [batch, T], true where there is a token.
Value bert(Scope s, Value tokens, const BertOptions& options = {}, std::optional<Value> attention_mask = std::nullopt);

struct MaskedTokens {
  Value tokens, targets;  ///< targets: i64, -100 where nothing is asked
};
/// Asks for each token with probability `rate`: of these 8 in 10 become `mask_token`, 1 in 10 any token, 1 in 10 stay. Drawn anew each step.
MaskedTokens mask_tokens(Scope s, Value tokens, double rate, int64_t vocabulary, int64_t mask_token);

}  // namespace stepgraph
