// SPDX-License-Identifier: Apache-2.0
// What the encoders of Google's transformers (BERT, ViT) start and normalise with.
#pragma once
#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {

/// Normal, deviation 0.02.
Initializer encoder_start();
/// A linear layer of such weights, its bias zero.
Value encoder_dense(Scope s, Value x, int64_t out);
/// A layer norm with epsilon 1e-12.
Value encoder_norm(Scope s, Value x);

}  // namespace stepgraph
