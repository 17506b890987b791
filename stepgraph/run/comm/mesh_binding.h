// SPDX-License-Identifier: Apache-2.0
// Which rank stands at which place of a mesh. A module speaks of coordinates only; this is the one place where they meet ranks.
#pragma once
#include <span>
#include <vector>
#include "stepgraph/tensor/mesh.h"
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

class MeshBinding {
 public:
  const Mesh& mesh() const { return mesh_; }
  int rank_count() const { return static_cast<int>(coordinates_.size()); }
  const Coordinates& coordinates(int rank) const;
  int rank_at(const Coordinates& coordinates) const;
  /// The ranks whose coordinates differ from `rank`'s on `axes` only, by linear coordinate over `axes` (major to minor). With a sub-axis, the other
  /// parts of that axis stay as `rank`'s.
  std::vector<int> group(int rank, std::span<const AxisRef> axes) const;

 private:
  friend MeshBinding bind_mesh(const Mesh& mesh, std::vector<Coordinates> rank_to_coordinates);
  MeshBinding() = default;
  Mesh mesh_;
  std::vector<Coordinates> coordinates_;  // by rank
  std::vector<int> ranks_;                // by row-major device
};

/// A bijection of ranks and places, checked: UserError naming the place that is missing, taken twice, or outside the mesh.
MeshBinding bind_mesh(const Mesh& mesh, std::vector<Coordinates> rank_to_coordinates);
/// Row-major: rank 0 at the origin, the last axis fastest.
MeshBinding bind_mesh(const Mesh& mesh);

}  // namespace stepgraph
