// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/comm/parts.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/run/comm/mesh_binding.h"
#include "stepgraph/run/comm/threads.h"

namespace stepgraph {
namespace {

/// Where a place's part of a value lies.
struct Box {
  Sizes starts, sizes;
};
Box box_of(const Sizes& sizes, const Sharding& sharding, const Mesh& mesh, const Coordinates& place, const SymbolTable& symbols) {
  SG_CHECK(sharding.dims.size() == sizes.size(), "sharding " + text(sharding) + " of a value of rank " + std::to_string(sizes.size()));
  const SymbolValues values = coordinate_values(mesh, place);
  Box box;
  for (size_t d = 0; d < sizes.size(); ++d) {
    box.starts.push_back(evaluate(local_start(sizes[d], sharding.dims[d], mesh, symbols), values));
    box.sizes.push_back(evaluate(local_extent(sizes[d], sharding.dims[d], mesh, symbols), values));
    if (box.sizes[d] == 0) box.starts[d] = 0;  // a block past the end
  }
  return box;
}

/// Calls `row(offset in whole, offset in part, elements)` for each contiguous run of the box.
template <class Row>
void for_rows(const Sizes& whole, const Box& box, Row row) {
  if (element_count(box.sizes) == 0) return;
  const size_t rank = whole.size();
  if (rank == 0) return row(int64_t{0}, int64_t{0}, int64_t{1});
  const int64_t length = box.sizes[rank - 1];
  Sizes index(rank, 0);
  for (int64_t part = 0;; part += length) {
    int64_t offset = 0;
    for (size_t d = 0; d < rank; ++d) offset = offset * whole[d] + box.starts[d] + index[d];
    row(offset, part, length);
    size_t d = rank - 1;
    while (d-- > 0) {
      if (++index[d] < box.sizes[d]) break;
      index[d] = 0;
    }
    if (d == static_cast<size_t>(-1)) return;
  }
}

/// The coordinates over the partial axes are all 0.
bool holds_partial_value(const Sharding& sharding, const Mesh& mesh, const Coordinates& place) {
  const SymbolValues values = coordinate_values(mesh, place);
  return std::all_of(sharding.partial.begin(), sharding.partial.end(),
                     [&](const PartialAxis& p) { return evaluate(axis_coordinate(p.axis, mesh), values) == 0; });
}

}  // namespace

Literal local_part(const Literal& value, const Sharding& sharding, const Mesh& mesh, const Coordinates& place, const SymbolTable& symbols) {
  const Box box = box_of(value.sizes(), sharding, mesh, place, symbols);
  if (!holds_partial_value(sharding, mesh, place)) return reduce_identity(sharding.partial[0].kind, value.dtype(), box.sizes);
  if (box.sizes == value.sizes()) return value;
  Literal part = Literal::uninitialised(value.dtype(), box.sizes);
  const size_t unit = size_bytes(value.dtype());
  for_rows(value.sizes(), box, [&](int64_t from, int64_t to, int64_t count) {
    std::memcpy(part.mutable_data() + static_cast<size_t>(to) * unit, value.data() + static_cast<size_t>(from) * unit, static_cast<size_t>(count) * unit);
  });
  return part;
}

Literal join_parts(std::span<const Literal> parts, const Sharding& sharding, const Sizes& sizes, const Mesh& mesh, const SymbolTable& symbols) {
  SG_CHECK(static_cast<int64_t>(parts.size()) == mesh.device_count(), std::to_string(parts.size()) + " parts");
  Literal whole(parts[0].dtype(), sizes);
  const size_t unit = size_bytes(whole.dtype());
  std::vector<bool> done(parts.size(), false);
  for (size_t device = 0; device < parts.size(); ++device) {
    if (done[device]) continue;
    const Box box = box_of(sizes, sharding, mesh, coordinates_of(mesh, static_cast<int64_t>(device)), symbols);
    // All devices that hold this part: replicas, or the summands of a partial value.
    std::vector<AxisRef> partial_axes;
    for (const PartialAxis& partial : sharding.partial) partial_axes.push_back(partial.axis);
    const std::vector<int> group = bind_mesh(mesh).group(static_cast<int>(device), partial_axes);
    Literal part = parts[device];
    SG_CHECK(part.sizes() == box.sizes, "part of device " + std::to_string(device) + " is " + part.text(0) + ", whole " + whole.text(0) + " " + text(sharding));
    if (!sharding.partial.empty()) {
      std::vector<const Literal*> summands;
      for (const int member : group) summands.push_back(&parts[static_cast<size_t>(member)]), done[static_cast<size_t>(member)] = true;
      part = Literal::uninitialised(whole.dtype(), box.sizes);
      reduce_elements(sharding.partial[0].kind, summands, part.mutable_data(), 0, part.count());
    }
    for_rows(sizes, box, [&](int64_t to, int64_t from, int64_t count) {
      std::memcpy(whole.mutable_data() + static_cast<size_t>(to) * unit, part.data() + static_cast<size_t>(from) * unit, static_cast<size_t>(count) * unit);
    });
  }
  // A replica that differs is a fault of the partition: two ranks would go on with different values.
  if (!sharding.partial.empty()) return whole;
  for (size_t device = 0; device < parts.size(); ++device) {
    const Literal own = local_part(whole, sharding, mesh, coordinates_of(mesh, static_cast<int64_t>(device)), symbols);
    if (!(own == parts[device]))
      throw InternalError("replicas differ: device " + std::to_string(device) + " holds " + parts[device].text(8) + ", another one " + own.text(8));
  }
  return whole;
}

}  // namespace stepgraph
