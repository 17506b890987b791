// SPDX-License-Identifier: Apache-2.0
// What a Loop need not do again and again leaves its body:
//   - what depends on invariants alone is computed before the loop; broadcasts, constants and iotas are made where they are used                  exact
//   - a stack of one value becomes a broadcast, a stack of a scanned slice the scanned tensor, equal stacks one, a scanned broadcast an invariant exact
//   - carried values and stacks that serve nothing go                                                                                             exact
// and, but for a loop over micro-batches, whose bodies must not need the memory of the whole batch:
//   - a product of a scanned slice (or of element-wise ops on slices) with an invariant is one product over the whole stack before the loop,
//     and what is stacked of slices alone is computed outside                                                                                     exact
//   - a carried sum that only adds up products of two slices or stacked values, sums over their dims, or themselves, is one product or sum after
//     the loop                                                                                       default: the order of summation is another one
//   - an invariant matrix that products read by columns alone is transposed before the loop (loop_weights.h)                                        default
// A loop over micro-batches is one that scans an input of role batch whose dim of rows is not the first. Nodes that can fail (an index out of range) and
// that communicate stay. Each Loop gets a body of its own. Optional.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

Module hoist_from_loops(Module module);

}  // namespace stepgraph
