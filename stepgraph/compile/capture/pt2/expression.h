// SPDX-License-Identifier: Apache-2.0
// Sizes as PyTorch writes them: constructor terms ("Mul(Integer(4), Symbol('s48', positive=True, integer=True))") and infix ("4*s48 + s6//2").
#pragma once
#include <optional>
#include <string_view>
#include "stepgraph/tensor/dim.h"

namespace stepgraph::pt2 {

/// The term as a Dim; nothing if it is well formed but no integer that a Dim can express (a comparison, a float, a function unknown here).
/// Truncation is taken as floor: sizes are not negative. UserError for malformed text, one that nests too deep, overflows or grows too large.
std::optional<Dim> parse_expression(std::string_view text);
/// What Python's int(size * factor) is; nothing for a factor of which no quotient of small whole numbers tells that.
std::optional<Dim> scaled_size(const Dim& size, double factor);

}  // namespace stepgraph::pt2
