// SPDX-License-Identifier: Apache-2.0
// Patterns of names, as options and layouts give them: '*' stands for any characters, '?' for one, all others for themselves.
#pragma once
#include <string_view>

namespace stepgraph {

bool matches(std::string_view pattern, std::string_view name);

}  // namespace stepgraph
