// SPDX-License-Identifier: Apache-2.0
// Repeated blocks of a flat graph, as an imported program has them, become Calls of one graph: a model of 48 equal layers is then differentiated, laid
// out and printed as one layer.
//
// A repeated block is a run of consecutive nodes that follows itself at least once with equal ops, equal types and equal references inside. What a block
// reads from outside (parameters, the result of the block before, a mask) becomes arguments of the call; what is read from it outside becomes results.
// Constants, Iotas and SizeValues belong to no block: one that all blocks read alike is made inside, one that differs (a rate of stochastic depth) is an
// argument. Where several periods are possible, the one that saves most nodes is taken first, from its first place; blocks inside blocks are found in the
// graphs that come of it. Boundaries lie where the scopes of the model do, else where fewest values cross.
//
// Class: exact: draws too, whose keys differ by a constant that is then an argument. Optional. Logical stage only. Graphs of composites, bodies of
// MapTensors and the entry init stay as they are. Time near-linear in the number of nodes.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

Module outline_repeats(Module module);

}  // namespace stepgraph
