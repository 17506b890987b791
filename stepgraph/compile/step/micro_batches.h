// SPDX-License-Identifier: Apache-2.0
// Random numbers of a micro-batch: the same ones that the whole batch would draw.
#pragma once
#include <string>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// A copy of the graph (and of the graphs that it calls, where needed) in which each draw is placed in the whole batch: a dim that has the batch as a factor
/// becomes `micro_batches` times as long in global_shape and starts behind the micro-batches before. The batch symbol is dim 0 of the Batch inputs; where it
/// is not the outermost factor of a dim, what is done with the draw tells, and the draw is made with that dim apart. UserError if dim 0 is not a symbol, if a
/// dim of a draw has the batch otherwise than as a factor, or as one whose place is not known, and for a loop over the batch that draws.
GraphId place_random_numbers(Module& module, GraphId graph, const std::string& iteration, int64_t micro_batches);

}  // namespace stepgraph
