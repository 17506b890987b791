// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/reference/mesh_run.h"

#include <string>

#include "stepgraph/reference/interpreter.h"
#include "stepgraph/run/comm/parts.h"
#include "stepgraph/run/comm/threads.h"

namespace stepgraph {
Sizes joined_sizes(std::span<const Literal> parts, const Sharding& sharding, const MeshBinding& binding) {
  Sizes sizes = parts[0].sizes();
  for (size_t d = 0; d < sizes.size(); ++d) {
    sizes[d] = 0;
    for (const int device : binding.group(0, sharding.dims[d].axes)) sizes[d] += parts[static_cast<size_t>(device)].sizes()[d];
  }
  return sizes;
}

MeshRun run_on_mesh(const Module& module, GraphId graph_id, std::span<const Literal> inputs, const SymbolValues& symbols) {
  const Graph& graph = module.graph(graph_id);
  const MeshBinding binding = bind_mesh(module.mesh);
  SG_CHECK(inputs.size() == graph.inputs.size(), graph.name + " got " + std::to_string(inputs.size()) + " inputs");
  MeshRun run;
  run.local.resize(static_cast<size_t>(binding.rank_count()));
  run_ranks(binding.rank_count(), [&](int rank, Communicator& communicator) {
    std::vector<Literal> local;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto& sharding = graph.type(graph.inputs[i].value).sharding;
      local.push_back(sharding ? local_part(inputs[i], *sharding, module.mesh, binding.coordinates(rank), module.symbols) : inputs[i]);
    }
    Interpreter interpreter(module, communicator, binding);
    run.local[static_cast<size_t>(rank)] = interpreter.run(graph_id, std::move(local), symbols);
  });
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    std::vector<Literal> parts;
    for (const auto& outputs : run.local) parts.push_back(outputs[o]);
    const Sharding sharding = graph.type(graph.outputs[o].value).sharding.value_or(Sharding::replicated(parts[0].rank()));
    run.outputs.push_back(join_parts(parts, sharding, joined_sizes(parts, sharding, binding), module.mesh, module.symbols));
  }
  return run;
}

}  // namespace stepgraph
