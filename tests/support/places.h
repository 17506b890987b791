// SPDX-License-Identifier: Apache-2.0
// Where the sources and the built command lie. Known to one .cpp only, so that no other test depends on the folder it is built in.
#pragma once

namespace stepgraph::testing {

const char* source_root();
const char* built_tool();

}  // namespace stepgraph::testing
