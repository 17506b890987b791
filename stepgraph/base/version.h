// SPDX-License-Identifier: Apache-2.0
// The version of the project. The build reads it from this line, so it is written once.
#pragma once

namespace stepgraph {

inline constexpr const char* version_string = "0.1.0";

}  // namespace stepgraph
