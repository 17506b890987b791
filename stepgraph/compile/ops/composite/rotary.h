// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., 2021).
#pragma once
#include <optional>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

struct RotaryOptions {
  double theta = 10000;               ///< pair j of D/2 turns by position * theta^(-2j/D)
  bool interleaved = false;           ///< pairs are neighbours (2j, 2j + 1); else element j pairs with j + D/2, as in LLaMA's PyTorch versions
  std::optional<Value> positions = {};  ///< integers that broadcast to [..., T]; 0, 1, ... when absent
};
/// x [..., T, D] with D constant and even: each pair of features turned by an angle that grows with its position. Angles are f32 (f64 for f64).
Value rotary_embedding(At x, const RotaryOptions& options = {});

}  // namespace stepgraph
