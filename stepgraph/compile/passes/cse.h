// SPDX-License-Identifier: Apache-2.0
// Common sub-expressions: of nodes with equal op and equal operands in one graph, the first stays and serves all. Ops are pure, draws and calls among them,
// so equal nodes have equal values. Collectives stay. Class: exact. Optional.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

Module merge_common_subexpressions(Module module);

}  // namespace stepgraph
