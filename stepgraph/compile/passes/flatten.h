// SPDX-License-Identifier: Apache-2.0
// Entries without calls: composites and repeated layers become the nodes of each of their instances, also inside the bodies of Loops and MapTensors, which
// stay. A node that has no phase or place of its own takes its call's; its scope is a path from that of the call ("h.0" and "attn" give "h.0.attn"), and so
// tells the instance of the layer. Nodes and graphs that nothing reaches go. Linear in the size of what it gives. Class: exact.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

Module flatten(Module module);

}  // namespace stepgraph
