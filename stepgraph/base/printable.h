// SPDX-License-Identifier: Apache-2.0
// Text of a user's (a name, a path, what a file holds) as it may be shown: names are bytes, and terminals and JSON want UTF-8.
#pragma once
#include <string>
#include <string_view>

namespace stepgraph {

bool is_utf8(std::string_view text);
/// Control characters and bytes that are no UTF-8 as "\xff"; the rest as it is. `lines`: line feeds and tabs stay.
std::string printable(std::string_view text, bool lines = false);

}  // namespace stepgraph
