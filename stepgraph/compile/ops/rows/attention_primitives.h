// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient by primitives: the decompositions of the two rows. Half precision is computed in f32 and rounded once.
#pragma once
#include <span>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

std::vector<Value> attention_by_primitives(const Op& op, std::span<const Value> inputs);
std::vector<Value> attention_gradient_by_primitives(const Op& op, std::span<const Value> inputs);

}  // namespace stepgraph
