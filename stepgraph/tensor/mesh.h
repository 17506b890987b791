// SPDX-License-Identifier: Apache-2.0
// A mesh: named axes with sizes. A device's place is a coordinate on each axis. A rank is a process (or thread) and is bound to coordinates
// by run/comm/mesh_binding.h; nothing in a module names a rank.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/tensor/dim.h"

namespace stepgraph {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};
struct Mesh {
  std::vector<MeshAxis> axes;  ///< major to minor
  int64_t device_count() const;
  const MeshAxis* find(std::string_view axis) const;
  std::string text() const;  ///< "data=2,model=4"; "" for the empty mesh of one device
  bool operator==(const Mesh&) const = default;
};
/// Reads "data=2,model=4"; UserError on a bad name, size < 1, a repeated axis, or more than 2^20 devices. "" is the empty mesh.
Mesh parse_mesh(std::string_view text);

/// Coordinates of a device, one for each axis in order.
using Coordinates = std::vector<int64_t>;
Coordinates coordinates_of(const Mesh& mesh, int64_t device);  ///< row-major
int64_t device_of(const Mesh& mesh, const Coordinates& coordinates);
/// The symbol of this rank's coordinate on an axis: "coord." + axis.
Dim coordinate_symbol(const std::string& axis);
void declare_coordinates(SymbolTable& symbols, const Mesh& mesh);

}  // namespace stepgraph
