// SPDX-License-Identifier: Apache-2.0
// How a tensor of global shape is laid over a mesh: for each tensor dim the mesh axes that split it, major to minor, and the axes over which
// the local values are partial results. A part of an axis, written axis:(pre)size, takes the sub-axis whose stride leaves `pre` parts to its left
// (the notation of Shardy's sharding representation).
//
// A dim of size n split over k = product of its axes' sizes in units of `grain` gives each coordinate c a local slice
//   start = c * block, extent = max(0, min(block, n - c * block)),  block = ceildiv(n, grain * k) * grain
// with c the linear coordinate over the axes. Several axes nest: block of the inner axes is taken of the outer block (nested ceiling). Local types
// hold the valid extent itself, an expression in the coordinates when it is uneven; there is no padding to mask.
#pragma once
#include <array>
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <span>
#include <string_view>
#include <vector>
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/mesh.h"

namespace stepgraph {

enum class ReduceKind : uint8_t { Sum, Product, Max, Min, Any, All };
constexpr std::array<std::string_view, 6> reduce_kind_names = {"sum", "product", "max", "min", "any", "all"};
inline std::span<const std::string_view> enum_names(ReduceKind) { return reduce_kind_names; }
std::string_view name(ReduceKind kind);  ///< "sum"
std::optional<ReduceKind> reduce_kind_from_name(std::string_view text);

struct AxisRef {
  std::string axis;
  int64_t pre = 1;   ///< parts of the axis to the left
  int64_t size = 0;  ///< 0 = the whole axis
  auto operator<=>(const AxisRef&) const = default;
};
/// Two parts of the mesh that cannot both be used by one value: they share an axis, and neither lies wholly to the left of the other.
bool overlap(const AxisRef& a, const AxisRef& b);
struct DimSharding {
  std::vector<AxisRef> axes;  ///< major to minor; empty = not split
  Dim grain = 1;              ///< the unit of splitting, for merged dims
  bool operator==(const DimSharding&) const = default;
};
struct PartialAxis {
  AxisRef axis;
  ReduceKind kind = ReduceKind::Sum;
  bool operator==(const PartialAxis&) const = default;
};
bool is_partial_over(const std::vector<PartialAxis>& partials, const AxisRef& axis);
struct Sharding {
  std::vector<DimSharding> dims;     ///< one for each tensor dim
  std::vector<PartialAxis> partial;  ///< sorted by axis
  static Sharding replicated(size_t rank);
  bool is_replicated() const;  ///< neither split nor partial
  bool splits(const AxisRef& axis) const;
  bool operator==(const Sharding&) const = default;
};
/// For tables in memory: not the same on every machine.
uint64_t hash(const DimSharding& sharding);
uint64_t hash(const Sharding& sharding);
/// "{data}, {}, {model:(2)2} partial(sum: data)"; with grain: "{data grain 64}".
std::string text(const Sharding& sharding);
Sharding parse_sharding(std::string_view text);
/// UserError if an axis is unknown, used twice, overlaps another part of itself, or a sub-axis does not divide; also if dims and rank differ.
void check_sharding(const Sharding& sharding, size_t rank, const Mesh& mesh);

int64_t axis_size(const AxisRef& axis, const Mesh& mesh);
/// The coordinate of an axis or sub-axis as an expression of "coord.<axis>".
Dim axis_coordinate(const AxisRef& axis, const Mesh& mesh);
int64_t split_count(const DimSharding& sharding, const Mesh& mesh);
/// A coordinate's slice, as expressions of the coordinates; constants where it is even. `block` is the largest extent: the nested ceiling.
struct LocalSlice {
  Dim start, extent, block;
};
LocalSlice whole_slice(const Dim& size);
/// One level of nesting: the part of `outer` that the coordinate on `axis` holds. The mesh's coordinates are declared.
LocalSlice nested_slice(const LocalSlice& outer, const AxisRef& axis, const Dim& grain, const Mesh& mesh, const SymbolTable& symbols);
/// A merged dim of whole grains is cut like the dim that counts the grains: how many they are, if it is one.
std::optional<Dim> count_of_grains(const Dim& size, const DimSharding& sharding);
Dim block_size(const Dim& size, const DimSharding& sharding, const Mesh& mesh, const SymbolTable& symbols);
Dim local_extent(const Dim& size, const DimSharding& sharding, const Mesh& mesh, const SymbolTable& symbols);
Dim local_start(const Dim& size, const DimSharding& sharding, const Mesh& mesh, const SymbolTable& symbols);
Shape local_shape(const Shape& shape, const Sharding& sharding, const Mesh& mesh, const SymbolTable& symbols);
/// Values of all "coord.*" symbols at a place of the mesh.
SymbolValues coordinate_values(const Mesh& mesh, const Coordinates& coordinates);

}  // namespace stepgraph
