// SPDX-License-Identifier: Apache-2.0
// Which build of the compiler this is.
#pragma once
#include <string_view>

namespace stepgraph {

/// A hash of the library's sources, made by the build: what was compiled by another one is not taken for its own.
std::string_view build_id();

}  // namespace stepgraph
