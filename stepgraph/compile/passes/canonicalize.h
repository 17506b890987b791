// SPDX-License-Identifier: Apache-2.0
// Rewrites of a flat graph into the forms that kernels take well, by what stands in the program alone. In order of the list in canonicalize.cpp:
//   stop_gradient                                      its operand                                                                      exact
//   x / 2^k                                            x * 2^-k, where that is a normal number                                          exact
//   element-wise ops on reshapes that add dims of 1    the reshape after the op                                                         exact
//   a sum of pads of zeros that fill a dim             concatenate: -0 stays -0, where the sum gave +0                                  default
//   scatter_add of one update a row into zeros         select by iota == index, where a gather holds the index to the same range,
//                                                      or it is in range for certain: so a wrong index stays an error                   exact
//   sum of such a scatter_add over its dim             the updates                                                                      exact
//   x + an index_add or scatter_add into zeros         the same into x, unless that is an input: rounded once, not twice                default
//   gather of one element a row of element-wise ops    the ops on what is gathered, where that is one operand                           exact
//   element-wise ops on one transpose and broadcasts   the transpose after the op, so that it meets another                             exact
//   reshape of a transpose                             the transpose after it, where it splits or joins dims that stand side by side    exact
//   reduction of a transpose                           of its operand                                                                   default
//   transpose of a matmul                              the matmul with operands exchanged, if nobody else reads it                      exact
//   matmul of a transpose                              of its operand, if that is [batch, rows, inner] or [batch, inner, rows] as well   exact
//   transpose of index_select                          index_select by transposed indices, where the selected rows stay whole           exact
//   matmul of index_select from a smaller table        index_select from the product of the table                                       exact
//   index_add of a transpose                           by transposed indices                                                            default
//   index_add of a matmul, and a matmul with rows of   the matmul of what index_add gives, where the table is the smaller one:          default
//   such a table over the indices                      the gradients of a multiplied table
//   slices of an element-wise value, side by side      the ops on slices (slice_elements.h)                                             exact
//   convolution whose windows lie side by side         matmul on reshaped operands, in three directions                                 default
// Provenance is that of the node that is replaced. Optional.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

Module canonicalize(Module module);

}  // namespace stepgraph
