// SPDX-License-Identifier: Apache-2.0
// Names that a mistyped one may have meant, for error messages.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace stepgraph {

/// Up to `limit` of `names`, nearest by edit distance first (equal ones in the order given), joined by ", ". Empty when there are no names.
std::string nearest_names(std::string_view wanted, std::span<const std::string> names, size_t limit = 3);

}  // namespace stepgraph
