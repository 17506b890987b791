// SPDX-License-Identifier: Apache-2.0
// A Local module on all places of its mesh, a thread each.
#pragma once
#include <span>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/run/comm/mesh_binding.h"

namespace stepgraph {

struct MeshRun {
  std::vector<Literal> outputs;             ///< global values, joined by the outputs' shardings
  std::vector<std::vector<Literal>> local;  ///< [device][output]
};
/// Runs a graph of a Local module on every place of `module.mesh`, a thread each. `inputs` are global values, cut by the shardings that the Local
/// types keep; `symbols` gives the global sizes.
MeshRun run_on_mesh(const Module& module, GraphId graph, std::span<const Literal> inputs, const SymbolValues& symbols = {});
/// The global sizes of parts by device: along a split dim, the sum over the devices that differ from device 0 on that dim's axes only.
Sizes joined_sizes(std::span<const Literal> parts, const Sharding& sharding, const MeshBinding& binding);

}  // namespace stepgraph
