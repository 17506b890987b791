// SPDX-License-Identifier: Apache-2.0
// Values of a flat program by name, and copies of them as results more: what a debugger looks at. A copy changes no other bit: what it is made of may be stored
// that was not, but is computed as before. Class: exact.
#pragma once
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// "forward/h.0.attn/attention": phase, layer (each if there is one) and operation; a second one of that name in the order of the program ends in "#2", a second result
/// of an operation in ".1". What a loop's body computes has no name: the loop's results have.
struct NamedValue {
  ValueId value;
  int node = 0;
  std::string name;
};
/// All that a graph computes, in the order of the program; constants are left out.
std::vector<NamedValue> value_names(const Graph& graph);

/// Each value whose name matches one of the patterns (base/pattern.h) becomes an output of role tap by its name: of the entry step, or of every entry where there is
/// none. UserError for a pattern that matches nothing, with near names.
Module tap(Module flat, const std::vector<std::string>& patterns);
/// The same of given values of one entry.
Module tap_values(Module flat, GraphId entry, const std::vector<NamedValue>& values);

}  // namespace stepgraph
