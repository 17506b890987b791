// SPDX-License-Identifier: Apache-2.0
// Control made flat. Both keep every value, random numbers included.
#pragma once
#include <functional>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Puts the nodes of called graphs in place of their Calls, wherever `take(callee)` says so (all when empty).
Module inline_calls(Module module, const std::function<bool(const Graph&)>& take = {});
/// Each MapTensors becomes its body's nodes, once for each tensor.
Module expand_map_tensors(Module module);

}  // namespace stepgraph
