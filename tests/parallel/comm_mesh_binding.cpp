// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "stepgraph/base/error.h"
#include "stepgraph/run/comm/mesh_binding.h"

namespace stepgraph {
namespace comm_mesh_binding_test {

std::string error_of(const Mesh& mesh, std::vector<Coordinates> places) {
  try {
    bind_mesh(mesh, std::move(places));
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MeshBinding, RowMajorByDefault) {
  const MeshBinding binding = bind_mesh(parse_mesh("data=2,model=3"));
  ASSERT_EQ(binding.rank_count(), 6);
  EXPECT_EQ(binding.coordinates(4), (Coordinates{1, 1}));
  EXPECT_EQ(binding.rank_at({1, 2}), 5);
  EXPECT_EQ(bind_mesh(Mesh{}).rank_count(), 1);
}

TEST(MeshBinding, GroupsAreOrderedByCoordinate) {
  // Ranks placed backwards: a group's order follows the places.
  const Mesh mesh = parse_mesh("data=2,model=3");
  std::vector<Coordinates> places;
  for (int rank = 0; rank < 6; ++rank) places.push_back(coordinates_of(mesh, 5 - rank));
  const MeshBinding binding = bind_mesh(mesh, places);
  const std::vector<AxisRef> data = {{"data"}}, model = {{"model"}}, both = {{"data"}, {"model"}}, swapped = {{"model"}, {"data"}};
  EXPECT_EQ(binding.group(0, data), (std::vector<int>{3, 0}));
  EXPECT_EQ(binding.group(0, model), (std::vector<int>{2, 1, 0}));
  EXPECT_EQ(binding.group(3, both), (std::vector<int>{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(binding.group(3, swapped), (std::vector<int>{5, 2, 4, 1, 3, 0}));
  EXPECT_EQ(binding.group(4, {}), std::vector<int>{4});
}

TEST(MeshBinding, PartsOfAnAxis) {
  const MeshBinding binding = bind_mesh(parse_mesh("a=8"));
  const std::vector<AxisRef> major = {{"a", 1, 2}}, middle = {{"a", 2, 2}}, minor = {{"a", 4, 2}}, outer = {{"a", 1, 4}};
  EXPECT_EQ(binding.group(5, major), (std::vector<int>{1, 5}));
  EXPECT_EQ(binding.group(5, middle), (std::vector<int>{5, 7}));
  EXPECT_EQ(binding.group(5, minor), (std::vector<int>{4, 5}));
  EXPECT_EQ(binding.group(5, outer), (std::vector<int>{1, 3, 5, 7}));
}

TEST(MeshBinding, IsABijection) {
  const Mesh mesh = parse_mesh("data=2,model=2");
  EXPECT_EQ(error_of(mesh, {{0, 0}, {0, 1}, {1, 0}}), "mesh data=2,model=2: no rank is at (data=1, model=1), found 3 ranks for 4 places");
  EXPECT_EQ(error_of(mesh, {{0, 0}, {0, 1}, {0, 1}, {1, 1}}), "mesh data=2,model=2: ranks 1 and 2 are both at (data=0, model=1)");
  EXPECT_EQ(error_of(mesh, {{0, 0}, {0, 2}, {1, 0}, {1, 1}}), "mesh data=2,model=2: rank 1 has coordinate 2 on axis 'model', wanted 0 to 1");
  EXPECT_EQ(error_of(mesh, {{0, 0}, {0}, {1, 0}, {1, 1}}), "mesh data=2,model=2: rank 1 has 1 coordinates, wanted 2");
  EXPECT_EQ(error_of(mesh, {{1, 1}, {0, 1}, {1, 0}, {0, 0}}), "no error");
}

}  // namespace comm_mesh_binding_test
}  // namespace stepgraph
