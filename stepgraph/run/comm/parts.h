// SPDX-License-Identifier: Apache-2.0
// A global value and its local parts on a mesh.
#pragma once
#include <span>
#include "stepgraph/tensor/literal.h"
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

/// The slice of `value` that the place holds. For a partial sharding the whole (slice) is at coordinate 0 of the partial axes and the reduction's
/// identity elsewhere.
Literal local_part(const Literal& value, const Sharding& sharding, const Mesh& mesh, const Coordinates& place, const SymbolTable& symbols);
/// The inverse: `parts[device]` in row-major order of the mesh. Partial parts are reduced; replicas must be bit-equal (InternalError).
Literal join_parts(std::span<const Literal> parts, const Sharding& sharding, const Sizes& sizes, const Mesh& mesh, const SymbolTable& symbols);

}  // namespace stepgraph
