// SPDX-License-Identifier: Apache-2.0
// Names of a program: what the reader of a graph may rely on.
#pragma once
#include <string>
#include "stepgraph/compile/capture/pt2/program.h"

namespace stepgraph::pt2 {

/// UserError "WHERE: nodes[12] (torch.ops.aten.add.Tensor): ..." unless in this graph and those nested in it each value is defined once and before its use,
/// and each tensor that is defined is described in `tensors`.
void check_names(const ExportedGraph& graph, const std::string& where);

}  // namespace stepgraph::pt2
