// SPDX-License-Identifier: Apache-2.0
// Which values depend differentiably on others.
#pragma once
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Marks the results of the first `nodes` nodes that depend on marked values. A call's results are taken to depend on all its inputs.
void mark_dependents(const Graph& graph, size_t nodes, std::vector<bool>& marked);

}  // namespace stepgraph
