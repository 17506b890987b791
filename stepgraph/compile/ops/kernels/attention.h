// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient by plain loops in f64, one head at a time: nothing larger than one head's scores is held. See ir/op.h for the meaning.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/tensor/literal.h"
#include "stepgraph/tensor/tensor_type.h"

namespace stepgraph {

/// Where the optional operands of an attention, and of its gradient, are.
struct AttentionInputs {
  AttentionInputs(const Attention& op, size_t count);  ///< of `count` inputs
  AttentionInputs(const AttentionGradient& op, size_t count);
  std::optional<size_t> mask, key;
  size_t own = 0;  ///< inputs of the attention; its results and their gradients follow
  bool fit = true;
};

/// Operands and results are the op's; each result is rounded once. UserError for sizes that do not fit.
std::vector<Literal> evaluate_attention(const Attention& op, std::span<const Literal> inputs, std::span<const TensorType> results);
std::vector<Literal> evaluate_attention_gradient(const AttentionGradient& op, std::span<const Literal> inputs, std::span<const TensorType> results);

}  // namespace stepgraph
