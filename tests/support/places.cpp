// SPDX-License-Identifier: Apache-2.0
#include "tests/support/places.h"

namespace stepgraph::testing {

const char* source_root() { return STEPGRAPH_SOURCE_DIR; }
const char* built_tool() { return STEPGRAPH_TOOL; }

}  // namespace stepgraph::testing
