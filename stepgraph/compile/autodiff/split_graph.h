// SPDX-License-Identifier: Apache-2.0
// Splits a graph that holds a forward part and the backward part appended to it into two graphs, and says which values cross.
#pragma once
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

struct SplitGraph {
  Graph forward;                 ///< its inputs are `forward_inputs`; outputs: `forward_outputs`, then `saved`
  Graph backward;                ///< its inputs are `backward_inputs`; outputs: the given ones
  std::vector<ValueId> saved;    ///< values of the combined graph, computed by the forward part and needed by the backward part
  std::vector<ValueId> backward_inputs;
};
/// `forward_nodes`: nodes before this index are the forward part. `gradient_inputs`: inputs of the combined graph that only the backward part reads.
/// Constants and what is made of them alone are built again in the backward part, not saved. Values in `forward_outputs` that the backward part reads are
/// among backward_inputs, not among `saved`. `gradient_inputs` come last among backward_inputs and always all of them, in order.
/// With `save_inputs`, forward inputs for which it is true cross as saved values (the carried values of a loop).
SplitGraph split_graph(const Graph& combined, size_t forward_nodes, const std::vector<ValueId>& forward_inputs, const std::vector<ValueId>& forward_outputs,
                       const std::vector<ValueId>& gradient_inputs, const std::vector<ValueId>& backward_outputs,
                       const std::vector<bool>& save_inputs = {});

}  // namespace stepgraph
