// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: a router sends each token to a few of many gated feed-forward parts (Shazeer et al., 2017), each with room for a share of the tokens
// (GShard: Lepikhin et al., 2020; Switch: Fedus et al., 2021). A sequence is a group: room, places and penalties are of one row of the batch, so that neither
// ranks nor micro-batches change anything.
#pragma once
#include <vector>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

struct ExpertOptions {
  int64_t top_k = 2;              ///< experts a token; of equal probabilities the first expert is taken
  double capacity_factor = 1.25;  ///< room of an expert: ceil(capacity_factor * top_k * T / experts) tokens of a row, at most T
  bool dense = false;             ///< every expert sees every token, weighted by the same gates: nothing is dropped, `experts / top_k` times the work
};
struct ExpertWeights {
  Value router;          ///< [experts, W], f32
  Value gate, up, down;  ///< [experts, I, W], [experts, I, W], [experts, W, I]: down(silu(gate x) * up x)
};
struct ExpertResult {
  Value result;   ///< [B, T, W], in the dtype of the experts' weights; zeros for a token without room in any expert
  Value balance;  ///< [B]: experts * sum over experts of (share of the choices * mean probability), 1 when even (Switch's auxiliary loss); f32 as what follows
  Value squares;  ///< [B]: mean of the square of log(sum(exp(router logits))) (Zoph et al., 2022)
  Value dropped;  ///< [B]: choices without room
};
/// x [B, T, W] with T constant. Logits, probabilities and gates are f32 whatever x is (f64 for f64). A gate is the probability, with top_k > 1 as a share of
/// those chosen. Places are given in the order of tokens, all first choices before the second ones.
ExpertResult mixture_of_experts(At x, const ExpertWeights& weights, const ExpertOptions& options = {});

}  // namespace stepgraph
