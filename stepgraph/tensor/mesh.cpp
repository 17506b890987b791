// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/mesh.h"

#include "stepgraph/base/error.h"
#include "stepgraph/base/text_scanner.h"

namespace stepgraph {
namespace {

constexpr int64_t device_count_max = 1 << 20;

}  // namespace

int64_t Mesh::device_count() const {
  int64_t count = 1;
  for (const MeshAxis& axis : axes)
    if (__builtin_mul_overflow(count, axis.size, &count)) throw UserError("mesh: device count overflows 64 bits");
  return count;
}

const MeshAxis* Mesh::find(std::string_view axis) const {
  for (const MeshAxis& candidate : axes)
    if (candidate.name == axis) return &candidate;
  return nullptr;
}

std::string Mesh::text() const {
  std::string result;
  for (const MeshAxis& axis : axes) result += (result.empty() ? "" : ",") + axis.name + "=" + std::to_string(axis.size);
  return result;
}

Mesh parse_mesh(std::string_view text) {
  Mesh mesh;
  TextScanner scanner(text, "mesh");
  if (scanner.at_end()) return mesh;
  int64_t devices = 1;
  do {
    TextScanner before = scanner;
    MeshAxis axis;
    axis.name = scanner.identifier("an axis name, as in data=2");
    if (mesh.find(axis.name) != nullptr) before.fail("axis '" + axis.name + "' is given twice");
    scanner.expect("=");
    before = scanner;
    axis.size = scanner.integer();
    if (axis.size < 1) before.fail("axis '" + axis.name + "' has size " + std::to_string(axis.size) + ", wanted at least 1");
    if (__builtin_mul_overflow(devices, axis.size, &devices) || devices > device_count_max)
      before.fail("more than " + std::to_string(device_count_max) + " devices");
    mesh.axes.push_back(std::move(axis));
    // Axes of size 1 do not grow the device count, so their number is bounded on its own.
    if (mesh.axes.size() > 64) scanner.fail("more than 64 axes");
  } while (scanner.try_consume(","));
  scanner.expect_end();
  return mesh;
}

Coordinates coordinates_of(const Mesh& mesh, int64_t device) {
  SG_CHECK(device >= 0 && device < mesh.device_count(), "device " + std::to_string(device) + " of mesh '" + mesh.text() + "'");
  Coordinates result(mesh.axes.size());
  for (size_t i = mesh.axes.size(); i-- > 0;) {
    result[i] = device % mesh.axes[i].size;
    device /= mesh.axes[i].size;
  }
  return result;
}

int64_t device_of(const Mesh& mesh, const Coordinates& coordinates) {
  SG_CHECK(coordinates.size() == mesh.axes.size());
  int64_t device = 0;
  for (size_t i = 0; i < coordinates.size(); ++i) {
    SG_CHECK(coordinates[i] >= 0 && coordinates[i] < mesh.axes[i].size, "coordinate on axis " + mesh.axes[i].name);
    device = device * mesh.axes[i].size + coordinates[i];
  }
  return device;
}

Dim coordinate_symbol(const std::string& axis) { return Dim::symbol("coord." + axis); }

void declare_coordinates(SymbolTable& symbols, const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.axes) symbols.declare({.name = "coord." + axis.name, .kind = SymbolKind::Coordinate, .maximum = axis.size - 1});
}

}  // namespace stepgraph
