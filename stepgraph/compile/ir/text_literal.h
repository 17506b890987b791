// SPDX-License-Identifier: Apache-2.0
// Reads one literal out of a longer text: shared by the module reader and parse_literal.
#pragma once
#include <cstdint>
#include <string_view>
#include "stepgraph/base/text_scanner.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// A splat is short text for much memory, so all those of one text share a bound.
inline constexpr int64_t splat_bytes_max = int64_t{256} << 20;

/// `text` is what the scanner reads; `splat_bytes` is what is left of splat_bytes_max.
Literal read_literal(TextScanner& scanner, std::string_view text, int64_t& splat_bytes);

}  // namespace stepgraph
