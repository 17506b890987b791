// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/sharding.h"

#include <algorithm>
#include <array>

#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/base/text_scanner.h"
#include "stepgraph/tensor/declaration_text.h"

namespace stepgraph {
namespace {

uint64_t mix_axis(uint64_t hash, const AxisRef& axis) {
  hash = mix_hash(hash, std::hash<std::string>()(axis.axis));
  return mix_hash(mix_hash(hash, static_cast<uint64_t>(axis.pre)), static_cast<uint64_t>(axis.size));
}

// ---- reading ----

DimSharding parse_dim_sharding(TextScanner& scanner) {
  DimSharding result;
  scanner.expect("{");
  if (scanner.try_consume("}")) return result;
  if (!scanner.next_is("grain")) {
    do result.axes.push_back(read_axis(scanner));
    while (scanner.try_consume(","));
  }
  if (scanner.try_consume("grain")) result.grain = parse_dim(scanner.balanced_until("}"));
  if (result.grain.is_constant() && result.grain.constant() < 1) scanner.fail("grain " + result.grain.text() + ", wanted at least 1");
  scanner.expect("}");
  return result;
}

std::vector<PartialAxis> parse_partial(TextScanner& scanner) {
  std::vector<PartialAxis> result;
  scanner.expect("(");
  do {
    const std::string kind_name = scanner.identifier("a reduction");
    const auto kind = reduce_kind_from_name(kind_name);
    if (!kind) scanner.fail("found reduction '" + kind_name + "', wanted sum, product, max, min, any or all");
    scanner.expect(":");
    do result.push_back({read_axis(scanner), *kind});
    while (scanner.try_consume(","));
  } while (scanner.try_consume(";"));
  scanner.expect(")");
  std::sort(result.begin(), result.end(), [](const PartialAxis& a, const PartialAxis& b) { return a.axis < b.axis; });
  return result;
}

// ---- checks ----

/// UserError if the part is none of its axis; returns it with the size filled in.
AxisRef checked_part(AxisRef axis, const Mesh& mesh) {
  const MeshAxis* whole = mesh.find(axis.axis);
  if (whole == nullptr) throw UserError("sharding: found axis '" + axis.axis + "', the mesh has '" + mesh.text() + "'");
  if (axis.size == 0) {
    if (axis.pre != 1) throw UserError("sharding: a whole axis " + axis.axis + " with " + std::to_string(axis.pre) + " parts before it");
    axis.size = whole->size;
  }
  int64_t product = 0;
  const bool sound = axis.pre >= 1 && axis.size >= 1 && !__builtin_mul_overflow(axis.pre, axis.size, &product) && whole->size % product == 0;
  if (!sound) throw UserError("sharding: part " + text(axis) + " does not divide axis " + axis.axis + " of size " + std::to_string(whole->size));
  return axis;
}

// ---- slices ----

/// The declared symbols, and the mesh's coordinates where the caller has not declared them: their ranges decide what is even.
class SymbolsWithCoordinates {
 public:
  SymbolsWithCoordinates(const SymbolTable& symbols, const Mesh& mesh) : used_(&symbols) {
    const bool declared = std::all_of(mesh.axes.begin(), mesh.axes.end(), [&](const MeshAxis& axis) { return symbols.find("coord." + axis.name) != nullptr; });
    if (declared) return;
    own_ = symbols;
    declare_coordinates(own_, mesh);
    used_ = &own_;
  }
  SymbolsWithCoordinates(const SymbolsWithCoordinates&) = delete;
  SymbolsWithCoordinates& operator=(const SymbolsWithCoordinates&) = delete;
  const SymbolTable& operator*() const { return *used_; }

 private:
  const SymbolTable* used_;
  SymbolTable own_;
};

LocalSlice slice_of(const Dim& size, const DimSharding& sharding, const Mesh& mesh, const SymbolTable& symbols) {
  if (sharding.axes.empty()) return whole_slice(size);
  const SymbolsWithCoordinates known(symbols, mesh);
  const std::optional<Dim> grains = count_of_grains(size, sharding);
  LocalSlice slice = whole_slice(grains.value_or(size));
  for (const AxisRef& axis : sharding.axes) slice = nested_slice(slice, axis, grains ? Dim(1) : sharding.grain, mesh, *known);
  if (grains) slice = {slice.start * sharding.grain, slice.extent * sharding.grain, slice.block * sharding.grain};
  return slice;
}

}  // namespace

std::string_view name(ReduceKind kind) { return reduce_kind_names[static_cast<size_t>(kind)]; }

std::optional<ReduceKind> reduce_kind_from_name(std::string_view text) {
  for (size_t i = 0; i < reduce_kind_names.size(); ++i)
    if (reduce_kind_names[i] == text) return static_cast<ReduceKind>(i);
  return std::nullopt;
}

bool overlap(const AxisRef& a, const AxisRef& b) {
  if (a.axis != b.axis) return false;
  if (a.size == 0 || b.size == 0) return true;
  return b.pre % (a.pre * a.size) != 0 && a.pre % (b.pre * b.size) != 0;
}

bool is_partial_over(const std::vector<PartialAxis>& partials, const AxisRef& axis) {
  return std::any_of(partials.begin(), partials.end(), [&](const PartialAxis& partial) { return partial.axis == axis; });
}

uint64_t hash(const DimSharding& sharding) {
  uint64_t result = sharding.grain.hash();
  for (const AxisRef& axis : sharding.axes) result = mix_axis(result, axis);
  return result;
}

uint64_t hash(const Sharding& sharding) {
  uint64_t result = sharding.dims.size();
  for (const DimSharding& dim : sharding.dims) result = mix_hash(result, hash(dim));
  for (const PartialAxis& partial : sharding.partial) result = mix_axis(mix_hash(result, static_cast<uint64_t>(partial.kind)), partial.axis);
  return result;
}

Sharding Sharding::replicated(size_t rank) {
  Sharding result;
  result.dims.resize(rank);
  return result;
}

bool Sharding::is_replicated() const {
  return partial.empty() && std::all_of(dims.begin(), dims.end(), [](const DimSharding& dim) { return dim.axes.empty(); });
}

bool Sharding::splits(const AxisRef& axis) const {
  return std::any_of(dims.begin(), dims.end(), [&](const DimSharding& dim) { return std::find(dim.axes.begin(), dim.axes.end(), axis) != dim.axes.end(); });
}

std::string text(const Sharding& sharding) {
  std::string result;
  for (const DimSharding& dim : sharding.dims) {
    result += result.empty() ? "{" : ", {";
    for (size_t i = 0; i < dim.axes.size(); ++i) result += (i > 0 ? ", " : "") + text(dim.axes[i]);
    if (dim.grain != Dim(1)) result += (dim.axes.empty() ? "grain " : " grain ") + dim.grain.text();
    result += "}";
  }
  if (sharding.partial.empty()) return result;
  result += result.empty() ? "partial(" : " partial(";
  for (size_t i = 0; i < sharding.partial.size(); ++i) {
    const PartialAxis& partial = sharding.partial[i];
    if (i > 0 && sharding.partial[i - 1].kind == partial.kind)
      result += ", ";
    else
      result += (i > 0 ? "; " : "") + std::string(name(partial.kind)) + ": ";
    result += text(partial.axis);
  }
  return result + ")";
}

Sharding parse_sharding(std::string_view text) {
  Sharding result;
  TextScanner scanner(text, "sharding");
  if (scanner.next_is("{")) {
    do result.dims.push_back(parse_dim_sharding(scanner));
    while (scanner.try_consume(","));
  }
  if (scanner.try_consume("partial")) result.partial = parse_partial(scanner);
  if (!scanner.at_end()) scanner.fail_wanted(result.dims.empty() ? "'{' or 'partial'" : "',' or 'partial'");
  return result;
}

void check_sharding(const Sharding& sharding, size_t rank, const Mesh& mesh) {
  if (sharding.dims.size() != rank)
    throw UserError("sharding: found " + std::to_string(sharding.dims.size()) + " dims, the tensor has " + std::to_string(rank));
  std::vector<AxisRef> used;
  const auto use = [&](const AxisRef& axis) {
    const AxisRef part = checked_part(axis, mesh);
    for (const AxisRef& other : used)
      if (overlap(other, part)) {
        const bool same = other == part;
        throw UserError("sharding: axis " + text(axis) + (same ? " is used twice" : " overlaps another part of it") + " in " + text(sharding));
      }
    // A part of size 1 splits nothing, but its name counts as used.
    used.push_back(part);
  };
  for (const DimSharding& dim : sharding.dims) {
    for (const AxisRef& axis : dim.axes) use(axis);
    if (dim.grain.is_constant() && dim.grain.constant() < 1) throw UserError("sharding: found grain " + dim.grain.text() + ", wanted at least 1");
  }
  for (const PartialAxis& partial : sharding.partial) use(partial.axis);
}

int64_t axis_size(const AxisRef& axis, const Mesh& mesh) { return checked_part(axis, mesh).size; }

Dim axis_coordinate(const AxisRef& axis, const Mesh& mesh) {
  const AxisRef part = checked_part(axis, mesh);
  const int64_t whole = mesh.find(axis.axis)->size;
  if (part.size == 1) return 0;
  const Dim coordinate = floordiv(coordinate_symbol(axis.axis), whole / (part.pre * part.size));
  return part.pre == 1 ? coordinate : mod(coordinate, part.size);
}

int64_t split_count(const DimSharding& sharding, const Mesh& mesh) {
  int64_t count = 1;
  for (const AxisRef& axis : sharding.axes)
    if (__builtin_mul_overflow(count, axis_size(axis, mesh), &count)) throw UserError("sharding: split count overflows 64 bits");
  return count;
}

LocalSlice whole_slice(const Dim& size) { return {0, size, size}; }

LocalSlice nested_slice(const LocalSlice& outer, const AxisRef& axis, const Dim& grain, const Mesh& mesh, const SymbolTable& symbols) {
  const int64_t parts = axis_size(axis, mesh);
  if (parts == 1) return outer;
  const Dim coordinate = axis_coordinate(axis, mesh);
  LocalSlice result;
  if (symbols.divides(grain * parts, outer.block) == Truth::True && outer.extent == outer.block) {
    result.block = symbols.simplify(floordiv(outer.block, parts));
    result.extent = result.block;
    result.start = symbols.simplify(outer.start + coordinate * result.block);
    return result;
  }
  result.block = symbols.simplify(ceildiv(outer.block, grain * parts) * grain);
  const Dim offset = coordinate * result.block;
  result.extent = symbols.simplify(max(0, min(result.block, outer.extent - offset)));
  // An empty slice starts at the end of the outer one, not beyond: start + extent never exceeds the size.
  result.start = symbols.simplify(outer.start + min(outer.extent, offset));
  return result;
}

std::optional<Dim> count_of_grains(const Dim& size, const DimSharding& sharding) {
  if (sharding.grain == Dim(1)) return std::nullopt;
  return exact_quotient(size, sharding.grain);
}

Dim block_size(const Dim& size, const DimSharding& sharding, const Mesh& mesh, const SymbolTable& symbols) {
  return slice_of(size, sharding, mesh, symbols).block;
}
Dim local_extent(const Dim& size, const DimSharding& sharding, const Mesh& mesh, const SymbolTable& symbols) {
  return slice_of(size, sharding, mesh, symbols).extent;
}
Dim local_start(const Dim& size, const DimSharding& sharding, const Mesh& mesh, const SymbolTable& symbols) {
  return slice_of(size, sharding, mesh, symbols).start;
}

Shape local_shape(const Shape& shape, const Sharding& sharding, const Mesh& mesh, const SymbolTable& symbols) {
  SG_CHECK(shape.size() == sharding.dims.size());
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) result.push_back(local_extent(shape[i], sharding.dims[i], mesh, symbols));
  return result;
}

SymbolValues coordinate_values(const Mesh& mesh, const Coordinates& coordinates) {
  SG_CHECK(coordinates.size() == mesh.axes.size());
  SymbolValues values;
  for (size_t i = 0; i < coordinates.size(); ++i) values["coord." + mesh.axes[i].name] = coordinates[i];
  return values;
}

}  // namespace stepgraph
