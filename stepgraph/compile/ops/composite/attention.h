// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention (Vaswani et al., 2017). Leading dims (batch, heads) stay dims of their own.
#pragma once
#include <optional>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

struct AttentionOptions {
  /// Bool: true takes part. Floating: added to the scores. Broadcasts to [..., T, S].
  std::optional<Value> mask = {};
  bool causal = false;          ///< query i sees keys 0 .. i
  std::optional<double> scale = {};  ///< of the scores; 1/sqrt(D) when absent
  double dropout = 0;           ///< of the weights; needs a key
  std::optional<Value> key = {};
};
/// query [..., T, D], key [..., S, D], value [..., S, E] -> [..., T, E]. A query that a mask leaves without any key gives zeros.
/// With fewer heads (dim -3) in key and value than in query, each serves a run of query heads (grouped queries: Ainslie et al., 2023).
Value scaled_dot_product_attention(At query, Value key, Value value, const AttentionOptions& options = {});

/// [..., T, heads * D] -> [..., heads, T, D], and back.
Value split_heads(At x, int64_t heads);
Value merge_heads(At x);

}  // namespace stepgraph
