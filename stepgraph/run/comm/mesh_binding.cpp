// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/comm/mesh_binding.h"

#include <string>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

std::string place_text(const Mesh& mesh, const Coordinates& coordinates) {
  std::string result = "(";
  for (size_t i = 0; i < coordinates.size(); ++i) {
    if (i > 0) result += ", ";
    if (i < mesh.axes.size()) result += mesh.axes[i].name + "=";
    result += std::to_string(coordinates[i]);
  }
  return result + ")";
}

void check_place(const Mesh& mesh, const Coordinates& place, size_t rank) {
  const std::string who = "mesh " + mesh.text() + ": rank " + std::to_string(rank);
  if (place.size() != mesh.axes.size())
    throw UserError(who + " has " + std::to_string(place.size()) + " coordinates, wanted " + std::to_string(mesh.axes.size()));
  for (size_t i = 0; i < place.size(); ++i) {
    if (place[i] < 0 || place[i] >= mesh.axes[i].size)
      throw UserError(who + " has coordinate " + std::to_string(place[i]) + " on axis '" + mesh.axes[i].name + "', wanted 0 to " +
                      std::to_string(mesh.axes[i].size - 1));
  }
}

/// One axis or sub-axis as digits of its axis' coordinate: coordinate = (.. * size + digit) * stride + ..
struct Digit {
  size_t axis;
  int64_t size, stride;
};
Digit digit_of(const Mesh& mesh, const AxisRef& ref) {
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    if (mesh.axes[i].name != ref.axis) continue;
    const int64_t whole = mesh.axes[i].size;
    const int64_t size = ref.size == 0 ? whole : ref.size;
    SG_CHECK(ref.pre >= 1 && size >= 1 && whole % (ref.pre * size) == 0, "sub-axis of '" + ref.axis + "'");
    return {i, size, whole / (ref.pre * size)};
  }
  throw UserError("mesh " + mesh.text() + " has no axis '" + ref.axis + "'");
}

}  // namespace

const Coordinates& MeshBinding::coordinates(int rank) const {
  SG_CHECK(rank >= 0 && rank < rank_count(), "rank " + std::to_string(rank));
  return coordinates_[static_cast<size_t>(rank)];
}

int MeshBinding::rank_at(const Coordinates& coordinates) const { return ranks_[static_cast<size_t>(device_of(mesh_, coordinates))]; }

std::vector<int> MeshBinding::group(int rank, std::span<const AxisRef> axes) const {
  std::vector<Coordinates> places = {coordinates(rank)};
  // Each axis multiplies the list; the first is the most significant, so it is varied in the outermost loop.
  for (const AxisRef& ref : axes) {
    const Digit digit = digit_of(mesh_, ref);
    std::vector<Coordinates> next;
    for (const Coordinates& place : places) {
      const int64_t own = place[digit.axis] / digit.stride % digit.size;
      for (int64_t value = 0; value < digit.size; ++value) {
        next.push_back(place);
        next.back()[digit.axis] += (value - own) * digit.stride;
      }
    }
    places = std::move(next);
  }
  std::vector<int> ranks;
  for (const Coordinates& place : places) ranks.push_back(rank_at(place));
  return ranks;
}

MeshBinding bind_mesh(const Mesh& mesh, std::vector<Coordinates> rank_to_coordinates) {
  const auto devices = static_cast<size_t>(mesh.device_count());
  MeshBinding binding;
  binding.mesh_ = mesh;
  binding.ranks_.assign(devices, -1);
  for (size_t rank = 0; rank < rank_to_coordinates.size(); ++rank) {
    const Coordinates& place = rank_to_coordinates[rank];
    check_place(mesh, place, rank);
    int& owner = binding.ranks_[static_cast<size_t>(device_of(mesh, place))];
    if (owner >= 0)
      throw UserError("mesh " + mesh.text() + ": ranks " + std::to_string(owner) + " and " + std::to_string(rank) + " are both at " + place_text(mesh, place));
    owner = static_cast<int>(rank);
  }
  for (size_t device = 0; device < devices; ++device) {
    if (binding.ranks_[device] < 0)
      throw UserError("mesh " + mesh.text() + ": no rank is at " + place_text(mesh, coordinates_of(mesh, static_cast<int64_t>(device))) + ", found " +
                      std::to_string(rank_to_coordinates.size()) + " ranks for " + std::to_string(devices) + " places");
  }
  binding.coordinates_ = std::move(rank_to_coordinates);
  return binding;
}

MeshBinding bind_mesh(const Mesh& mesh) {
  std::vector<Coordinates> places;
  for (int64_t device = 0; device < mesh.device_count(); ++device) places.push_back(coordinates_of(mesh, device));
  return bind_mesh(mesh, std::move(places));
}

}  // namespace stepgraph
