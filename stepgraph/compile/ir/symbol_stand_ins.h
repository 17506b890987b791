// SPDX-License-Identifier: Apache-2.0
// Names for the symbols of a module that say how they are declared and where they are used, not what they are called: for its hash.
#pragma once
#include <map>
#include <string>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

using SymbolStandIns = std::map<std::string, std::string, std::less<>>;

/// By name. Symbols are numbered in the order in which a walk from the entries (in order of name) first meets them: values before the nodes that read them,
/// graphs at their first call. Of symbols that one expression shows first, their declarations and all other expressions decide. What no output needs shares a
/// stand-in with all that is declared alike; a coordinate has none, since the mesh gives its name a meaning, nor has a derived one, which is its definition. Each node is walked once.
/// `module` is one that the verifier accepts.
SymbolStandIns symbol_stand_ins(const Module& module);

}  // namespace stepgraph
