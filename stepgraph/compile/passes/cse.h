// SPDX-License-Identifier: Apache-2.0
// Common sub-expressions: of nodes with equal op and equal operands in one graph, the first stays and serves all. Ops are pure, and a Random's identity is
// part of its equality, so equal nodes have equal values. Calls differ in their site and are not merged. Class: exact. Optional.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

Module merge_common_subexpressions(Module module);

}  // namespace stepgraph
