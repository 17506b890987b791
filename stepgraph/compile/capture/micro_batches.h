// SPDX-License-Identifier: Apache-2.0
// Random numbers of a micro-batch: the same ones that the whole batch would draw.
#pragma once
#include <string>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// A copy of the graph (and of the graphs that it calls, where needed) in which each Random is placed in the whole batch: a dim that is a multiple of the
/// batch symbol becomes `micro_batches` times as long in global_shape and starts at iteration * dim. The batch symbol is dim 0 of the Batch inputs.
/// UserError if dim 0 is not a symbol, or a random tensor has a dim in which the batch is not the outermost factor.
GraphId place_random_numbers(Module& module, GraphId graph, const std::string& iteration, int64_t micro_batches);

}  // namespace stepgraph
