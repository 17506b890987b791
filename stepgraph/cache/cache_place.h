// SPDX-License-Identifier: Apache-2.0
// Where a user's compile cache lies.
#pragma once
#include <string>

namespace stepgraph {

/// STEPGRAPH_CACHE if it is set, a folder or "off"; else stepgraph in $XDG_CACHE_HOME, or in ~/.cache; "off" where there is no such place.
std::string default_cache_folder();
/// STEPGRAPH_CACHE_LIMIT if it is set, else "2GiB".
std::string default_cache_limit();

}  // namespace stepgraph
