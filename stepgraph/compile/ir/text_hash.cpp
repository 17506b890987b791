// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/text_hash.h"

#include "stepgraph/compile/ir/text.h"

namespace stepgraph {

Hash128 text_hash(const Module& module) {
  Hasher hasher;
  PrintOptions options;
  options.places = false;    // and with them phases
  options.literals = false;  // by their bytes, which takes less time
  hasher.text(print_module(module, options));
  for (const Graph& graph : module.graphs) {
    for (const Node& node : graph.nodes) {
      hasher.number(static_cast<int64_t>(node.phase));
      if (const auto* constant = std::get_if<Constant>(&node.op)) hasher.bytes({constant->value.data(), constant->value.byte_count()});
    }
  }
  return hasher.finish();
}

}  // namespace stepgraph
