// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "stepgraph/base/printable.h"
#include "tools/verbs.h"

namespace stepgraph {

void tell(std::string_view what, std::string_view message) { std::fprintf(stderr, "%-8s%s\n", std::string(what).c_str(), printable(message, true).c_str()); }

}  // namespace stepgraph
