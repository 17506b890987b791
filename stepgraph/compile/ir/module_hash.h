// SPDX-License-Identifier: Apache-2.0
// What a module computes, as one number. Counted: entries, stage, mesh, ops with their attributes, types, roles with state names, identities of composites and
// their own gradients, ranges of symbols, random ids, and call sites of graphs that draw random numbers. Not counted: names of module, graphs, values and
// symbols, the order of nodes, graphs and entries, dead nodes, places and scopes.
#pragma once
#include "stepgraph/base/hash.h"
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// `module` is one that the verifier accepts.
Hash128 module_hash(const Module& module);

}  // namespace stepgraph
