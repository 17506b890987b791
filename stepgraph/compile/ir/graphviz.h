// SPDX-License-Identifier: Apache-2.0
// A graph as Graphviz text (`dot -Tsvg`): scopes are nested clusters, a call of a small composite is a cluster with its own nodes, other calls are one node.
#pragma once
#include <string>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

std::string graphviz(const Module& module, GraphId graph);

}  // namespace stepgraph
