// SPDX-License-Identifier: Apache-2.0
// A global value and its local parts on a mesh, and running a Local module on all places of its mesh as threads.
#pragma once
#include <span>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/run/comm/mesh_binding.h"

namespace stepgraph {

/// The slice of `value` that the place holds. For a partial sharding the whole (slice) is at coordinate 0 of the partial axes and the reduction's
/// identity elsewhere.
Literal local_part(const Literal& value, const Sharding& sharding, const Mesh& mesh, const Coordinates& place, const SymbolTable& symbols);
/// The inverse: `parts[device]` in row-major order of the mesh. Partial parts are reduced; replicas must be bit-equal (InternalError).
Literal join_parts(std::span<const Literal> parts, const Sharding& sharding, const Sizes& sizes, const Mesh& mesh, const SymbolTable& symbols);

struct MeshRun {
  std::vector<Literal> outputs;             ///< global values, joined by the outputs' shardings
  std::vector<std::vector<Literal>> local;  ///< [device][output]
};
/// Runs a graph of a Local module on every place of `module.mesh`, a thread each. `inputs` are global values, cut by the shardings that the Local
/// types keep; `symbols` gives the global sizes.
MeshRun run_on_mesh(const Module& module, GraphId graph, std::span<const Literal> inputs, const SymbolValues& symbols = {});

}  // namespace stepgraph
