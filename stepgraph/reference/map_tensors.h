// SPDX-License-Identifier: Apache-2.0
// MapTensors: the scalar body run over whole tensors, a chunk of elements at a time, so that no value in between is as large as a tensor.
#pragma once
#include <span>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/reference/plan.h"

namespace stepgraph {

/// `steps` is the body's plan, with all nodes bound.
std::vector<Literal> map_tensors(const MapTensors& map, const Graph& body, const GraphPlan& steps, std::span<const Literal> inputs);

}  // namespace stepgraph
