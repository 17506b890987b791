// SPDX-License-Identifier: Apache-2.0
// What every module must be, whatever made it: read text, a builder, a pass. Ids in range, values defined once and before their use, types as inferred again
// from the op table, roles that fit, entries that exist, no recursion, declared symbols, and the rules of the module's stage:
//   Logical  no mesh, no Reshard, no collectives, no shardings but those that a user wrote on inputs as a wish
//   Sharded  a sharding that fits the mesh on every value; no collectives
//   Local    shardings may stay as a record; no Reshard
// The rules of a stage hold for the graphs that entries reach (for all graphs when there is no entry): a composite's own gradient is a template until used.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// UserError for the first fault, naming graph, node and place: "add: shapes differ, ...; in %2 = add(%0, %1) of graph @main (model.sg:5)".
void verify(const Module& module);

}  // namespace stepgraph
