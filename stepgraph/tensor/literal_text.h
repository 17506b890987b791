// SPDX-License-Identifier: Apache-2.0
// The exact text of literals, as they stand in modules and plans: "f32[2] {1, 2}", "f32[64, 64] splat 0", "i64[1000] base64 \"...\"".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include "stepgraph/base/text_scanner.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

std::string literal_text(const Literal& literal);
/// `name` stands before the position in messages.
Literal parse_literal(std::string_view text, const std::string& name = "literal");

/// A splat is short text for much memory, so all those of one text share a bound.
inline constexpr int64_t splat_bytes_max = int64_t{256} << 20;

/// The literal that comes next; `splat_bytes` is what is left of splat_bytes_max.
Literal read_literal(TextScanner& scanner, int64_t& splat_bytes);

}  // namespace stepgraph
