// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer with a mixture of experts in each layer, as Mixtral (Jiang et al., 2024): LLaMA's attention around routed feed-forward parts with
// room for a share of the tokens. Names as in its PyTorch versions: model.layers.0.block_sparse_moe.gate.weight, ...block_sparse_moe.experts.0.w1.weight.
#pragma once
#include "stepgraph/compile/ops/composite/experts.h"
#include "stepgraph/train/models/llama.h"

namespace stepgraph {

struct MoeOptions : LlamaOptions {
  int64_t experts = 4;
  ExpertOptions routing = {};
};
struct MoeResult {
  Value logits;            ///< [batch, T, vocabulary]
  Value balance, squares;  ///< f32 [batch]: as ExpertResult's, means over the layers
  Value dropped;           ///< f32 [batch]: sum over the layers
};
/// tokens (integer) [batch, T], T constant.
MoeResult moe(Scope s, Value tokens, const MoeOptions& options = {});

struct MoePenalties {
  double balance = 0.01, squares = 0;
};
/// Cross-entropy and, in training, the penalties: each row's times its number of targets, so that parts of a batch add up. Metrics "accuracy" and "dropped",
/// the share of choices without room.
Loss moe_loss(Scope s, const MoeResult& result, Value targets, const MoeOptions& options, const MoePenalties& penalties = {});

}  // namespace stepgraph
