// SPDX-License-Identifier: Apache-2.0
// One change of layout as collectives and slices on local values:
//   partial -> whole   all_reduce, one for all axes of a kind          split -> whole   all_gather (pieces may differ in size)
//   partial -> split   reduce_scatter                                  whole -> split   slice at this coordinate's start
//   whole -> partial   the value at coordinate 0, the identity elsewhere
// and these one after another: reductions first (the local value is smallest then), gathers, slices, partial last.
#pragma once
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// `global` is the shape of the whole value, `from` and `to` its layouts, `local` this coordinate's part under `from`.
Value lower_reshard(Value local, const Shape& global, Sharding from, const Sharding& to, const Mesh& mesh, const SymbolTable& symbols);

}  // namespace stepgraph
