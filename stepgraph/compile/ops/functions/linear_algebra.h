// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include "stepgraph/compile/ops/functions/at.h"

namespace stepgraph {

/// torch.matmul: 1-D and batched operands, batch dims broadcast.
Value matmul(At a, At b);
Value dot_general(At a, At b, MatMul spec);
/// For a product that something is added to before both are rounded, as PyTorch does with a bias: of 16-bit operands the product is f32.
Value unrounded_matmul(At a, At b);
Value unrounded_dot_general(At a, At b, MatMul spec);
/// x with `dim` multiplied by a constant matrix [to, from].
Value multiply_dim(const Value& x, int64_t dim, const Literal& matrix);
/// torch.einsum over any number of operands; letters, ellipsis, sums over letters that the result has not, repeated letters in an operand (diagonals).
Value einsum(const std::string& equation, std::span<const Value> operands);

}  // namespace stepgraph
