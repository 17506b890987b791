// SPDX-License-Identifier: Apache-2.0
// Sharded -> Local: the program of one place of the mesh. Shapes become this coordinate's own (valid extents, expressions of the coordinates), Reshards
// become collectives and slices, other ops become their row's `partition` or stay themselves. The types keep the layouts as a record: they say how global
// inputs are cut and outputs joined. Purely mechanical: every decision is in the Sharded module.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// InternalError if an op's local result has not the shape that its layout gives.
Module partition(Module sharded);

}  // namespace stepgraph
