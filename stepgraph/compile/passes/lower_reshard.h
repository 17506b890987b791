// SPDX-License-Identifier: Apache-2.0
// One change of layout as collectives and slices on local values:
//   partial -> whole   all_reduce, one for all axes of a kind          split -> whole   all_gather (pieces may differ in size)
//   partial -> split   reduce_scatter                                  whole -> split   slice at this coordinate's start
//   whole -> partial   the value at coordinate 0, the identity elsewhere
// and these one after another: reductions first (the local value is smallest then), gathers, slices, partial last.
#pragma once
#include "stepgraph/compile/ops/builder.h"
#include "stepgraph/tensor/local_sizes.h"

namespace stepgraph {

/// Summands of halves are f32 until they are summed: the sum of all may be a half where a summand is beyond its range, and is rounded once.
DType local_dtype(const TensorType& type);
/// `global` is the type of the whole value with its layout now, `to` the wanted layout, `local` this coordinate's part.
Value lower_reshard(Value local, const TensorType& global, const Sharding& to, LocalSizes& sizes);

}  // namespace stepgraph
