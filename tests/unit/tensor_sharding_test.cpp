// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/tensor/local_sizes.h"
#include "stepgraph/tensor/tensor_type.h"
#include "tests/support/effort.h"

namespace stepgraph {
namespace tensor_sharding_test {

struct Range {
  int64_t start, extent;
};

/// The rule in plain numbers: an outer block over the first axis, of it an inner block over the next.
Range plain_slice(int64_t size, int64_t grain, const std::vector<std::pair<int64_t, int64_t>>& parts_and_coordinates) {
  Range result{0, size};
  int64_t block = size;
  for (const auto& [parts, coordinate] : parts_and_coordinates) {
    block = (block + grain * parts - 1) / (grain * parts) * grain;
    const int64_t offset = std::min(coordinate * block, result.extent);
    result = {result.start + offset, std::min(block, result.extent - offset)};
  }
  return result;
}

class SliceTest : public ::testing::Test {
 protected:
  /// Every slice as the expressions give it equals the plain rule, and the slices tile the dim in order of the coordinates.
  void check(const Mesh& mesh, const DimSharding& sharding, int64_t size, const Dim& size_dim, SymbolTable symbols) {
    declare_coordinates(symbols, mesh);
    const Dim extent = local_extent(size_dim, sharding, mesh, symbols);
    const Dim start = local_start(size_dim, sharding, mesh, symbols);
    const Dim block = block_size(size_dim, sharding, mesh, symbols);
    LocalSizes sizes(symbols, mesh);
    const Dim named_extent = sizes.extent(size_dim, sharding), named_start = sizes.start(size_dim, sharding);
    EXPECT_EQ(named_extent.text().find("min("), std::string::npos) << named_extent.text();
    const std::string where =
        mesh.text() + " size " + size_dim.text() + "=" + std::to_string(size) + " " + text(Sharding{{sharding}, {}}) + " extent " + extent.text();
    std::vector<int> covered(static_cast<size_t>(size), 0);
    int64_t largest = 0;
    for (int64_t device = 0; device < mesh.device_count(); ++device) {
      const Coordinates coordinates = coordinates_of(mesh, device);
      SymbolValues values = coordinate_values(mesh, coordinates);
      values["n"] = size;
      std::vector<std::pair<int64_t, int64_t>> parts;
      for (const AxisRef& axis : sharding.axes) parts.emplace_back(axis_size(axis, mesh), evaluate(axis_coordinate(axis, mesh), values));
      const int64_t grain = evaluate(sharding.grain, values);
      const Range expected = plain_slice(size, grain, parts);
      ASSERT_EQ(evaluate(extent, values), expected.extent) << where;
      ASSERT_EQ(evaluate(start, values), expected.start) << where;
      symbols.add_derived(values);
      ASSERT_EQ(evaluate(named_extent, values), expected.extent) << where << " named " << named_extent.text();
      ASSERT_EQ(evaluate(named_start, values), expected.start) << where << " named " << named_start.text();
      ASSERT_LE(expected.extent, symbols.bounds(named_extent).maximum) << where;
      ASSERT_LE(expected.extent, evaluate(block, values)) << where;
      largest = std::max(largest, expected.extent);
      for (int64_t i = 0; i < expected.extent; ++i) ++covered[static_cast<size_t>(expected.start + i)];
    }
    const int64_t replicas = mesh.device_count() / split_count(sharding, mesh);
    for (const int count : covered) ASSERT_EQ(count, replicas) << where;
    ASSERT_LE(largest, evaluate(block, {{"n", size}})) << where;
  }
};

TEST_F(SliceTest, SlicesTileTheDim) {
  const std::vector<std::pair<std::string, std::vector<AxisRef>>> layouts = {
      {"a=1", {{"a"}}},
      {"a=2", {{"a"}}},
      {"a=3", {{"a"}}},
      {"a=4,b=2", {{"a"}}},
      {"a=2,b=3", {{"a"}, {"b"}}},
      {"a=3,b=2", {{"b"}, {"a"}}},
      {"a=2,b=2,c=3", {{"c"}, {"a"}, {"b"}}},
      {"a=8", {{"a", 1, 2}, {"a", 2, 4}}},
      {"a=8", {{"a", 4, 2}, {"a", 1, 2}}},
      {"a=12", {{"a", 2, 3}}},
  };
  for (const auto& [mesh_text, axes] : layouts) {
    const Mesh mesh = parse_mesh(mesh_text);
    for (const int64_t grain : {1, 3, 4}) {
      for (int64_t size = 0; size <= 40; size += testing::is_sanitized ? 19 : 1) {
        check(mesh, {axes, grain}, size, size, {});
        SymbolTable symbols;
        const Dim n = symbols.declare({.name = "n", .maximum = 40});
        check(mesh, {axes, grain}, size, n, symbols);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(SliceTest, EvenSlicesAreSimple) {
  const Mesh mesh = parse_mesh("data=2,model=4");
  SymbolTable symbols;
  declare_coordinates(symbols, mesh);
  const Dim batch = symbols.declare({.name = "batch", .minimum = 2, .maximum = 4096, .multiple_of = 2});
  const DimSharding data{{{"data"}}, 1}, both{{{"data"}, {"model"}}, 1};
  EXPECT_EQ(local_extent(8, data, mesh, symbols), Dim(4));
  EXPECT_EQ(local_start(8, data, mesh, symbols).text(), "4*coord.data");
  EXPECT_EQ(local_extent(batch, data, mesh, symbols).text(), "floordiv(batch, 2)");
  EXPECT_EQ(local_extent(16, both, mesh, symbols), Dim(2));
  EXPECT_EQ(local_start(16, both, mesh, symbols).text(), "8*coord.data + 2*coord.model");
  EXPECT_EQ(local_extent(7, data, mesh, symbols).text(), "min(4, 7 - 4*coord.data)");
  EXPECT_EQ(local_start(7, data, mesh, symbols).text(), "4*coord.data");
  EXPECT_EQ(local_extent(7, {}, mesh, symbols), Dim(7));
  EXPECT_EQ(local_extent(64 * batch, {{{"data"}}, 64}, mesh, symbols).text(), "64*floordiv(batch, 2)");
  EXPECT_EQ(local_shape({batch, 12}, parse_sharding("{data}, {model}"), mesh, symbols), (Shape{floordiv(batch, 2), 3}));
  // Without the coordinates declared the answer is the same: the mesh gives their ranges.
  EXPECT_EQ(local_extent(7, data, mesh, {}).text(), "min(4, 7 - 4*coord.data)");
}

TEST_F(SliceTest, MergedDimsSplitInGrains) {
  const Mesh mesh = parse_mesh("data=2");
  SymbolTable symbols;
  declare_coordinates(symbols, mesh);
  const Dim n = symbols.declare({.name = "n", .minimum = 0, .maximum = 100});
  const DimSharding rows{{{"data"}}, 1}, merged{{{"data"}}, 5};
  // Rows of 5 elements, merged: the slice is the rows' slice times 5 for every size.
  for (int64_t size = 0; size <= 9; ++size) {
    for (int64_t c = 0; c < 2; ++c) {
      const SymbolValues values{{"n", size}, {"coord.data", c}};
      EXPECT_EQ(evaluate(local_extent(5 * n, merged, mesh, symbols), values), 5 * evaluate(local_extent(n, rows, mesh, symbols), values));
      EXPECT_EQ(evaluate(local_start(5 * n, merged, mesh, symbols), values), 5 * evaluate(local_start(n, rows, mesh, symbols), values));
    }
  }
}

TEST(LocalSizesTest, OneNameForOneThing) {
  const Mesh mesh = parse_mesh("data=2,model=3");
  SymbolTable symbols;
  const Dim n = symbols.declare({.name = "n", .minimum = 0, .maximum = 100});
  const Dim even = symbols.declare({.name = "even", .minimum = 2, .maximum = 100, .multiple_of = 2});
  LocalSizes sizes(symbols, mesh);
  const DimSharding rows{{{"data"}}, 1};
  EXPECT_EQ(sizes.extent(n, rows).text(), "n.data");
  EXPECT_EQ(sizes.extent(64 * n, {{{"data"}}, 64}).text(), "64*n.data");
  EXPECT_EQ(sizes.start(64 * n, {{{"data"}}, 64}).text(), "64*start.n.data");
  EXPECT_EQ(sizes.extent(n, {{{"data"}, {"model"}}, 1}).text(), "n.data.model");
  EXPECT_EQ(symbols.find("n.data.model")->definition.symbols(), (std::vector<std::string>{"coord.model", "n", "n.data"}));
  EXPECT_EQ(sizes.extent(2 * n + 1, rows).text(), "n2_n_plus_1.data");
  EXPECT_EQ(sizes.extent(7, rows).text(), "n7.data");
  // What always divides has no name.
  const size_t declared = symbols.all().size();
  EXPECT_EQ(sizes.extent(8, rows), Dim(4));
  EXPECT_EQ(sizes.extent(even, rows), floordiv(even, 2));
  EXPECT_EQ(sizes.extent(n, {}), n);
  EXPECT_EQ(sizes.shape({n, 9}, parse_sharding("{data}, {model}")), (Shape{Dim::symbol("n.data"), 3}));
  EXPECT_EQ(symbols.all().size(), declared);
  // A name that the program has taken.
  symbols.declare({.name = "m.data"});
  EXPECT_EQ(sizes.extent(symbols.declare({.name = "m"}), rows).text(), "m.data.2");
}

TEST(ShardingTest, PartsOfAnAxisOverlapUnlessOneIsLeftOfTheOther) {
  const std::vector<AxisRef> parts = {{"a"},       {"a", 1, 2}, {"a", 1, 3}, {"a", 1, 4}, {"a", 2, 2},
                                      {"a", 2, 3}, {"a", 3, 2}, {"a", 4, 3}, {"a", 6, 2}, {"b", 1, 2}};
  const Mesh mesh = parse_mesh("a=12,b=2");
  for (const AxisRef& x : parts)
    for (const AxisRef& y : parts) {
      // Two parts may be used together when each pair of their coordinates occurs equally often.
      std::map<std::pair<int64_t, int64_t>, int> seen;
      for (int64_t device = 0; device < 24; ++device) {
        const SymbolValues values = coordinate_values(mesh, coordinates_of(mesh, device));
        ++seen[{evaluate(axis_coordinate(x, mesh), values), evaluate(axis_coordinate(y, mesh), values)}];
      }
      bool independent = static_cast<int64_t>(seen.size()) == axis_size(x, mesh) * axis_size(y, mesh);
      for (const auto& [pair, count] : seen) independent = independent && count == seen.begin()->second;
      if (!overlap(x, y)) {
        EXPECT_TRUE(independent) << x.axis << x.pre << x.size << y.axis << y.pre << y.size;
      }
      EXPECT_EQ(overlap(x, y), overlap(y, x));
      bool accepted = true;
      try {
        check_sharding({{{{x}, 1}, {{y}, 1}}, {}}, 2, mesh);
      } catch (const UserError&) {
        accepted = false;
      }
      EXPECT_EQ(overlap(x, y), !accepted);
    }
  EXPECT_TRUE(overlap({"a", 1, 3}, {"a", 4, 3}));
  EXPECT_FALSE(overlap({"a", 1, 3}, {"a", 3, 2}));
}

TEST(ShardingTest, SubAxesFactorTheCoordinate) {
  const Mesh mesh = parse_mesh("a=12");
  for (int64_t c = 0; c < 12; ++c) {
    const SymbolValues values{{"coord.a", c}};
    const int64_t major = evaluate(axis_coordinate({"a", 1, 2}, mesh), values);
    const int64_t middle = evaluate(axis_coordinate({"a", 2, 3}, mesh), values);
    const int64_t minor = evaluate(axis_coordinate({"a", 6, 2}, mesh), values);
    EXPECT_EQ((major * 3 + middle) * 2 + minor, c);
  }
  EXPECT_EQ(axis_coordinate({"a"}, mesh).text(), "coord.a");
  EXPECT_EQ(axis_coordinate({"a", 2, 1}, mesh), Dim(0));
  EXPECT_EQ(axis_size({"a"}, mesh), 12);
}

TEST(ShardingTest, TextReadsBack) {
  for (const char* canonical : {"", "{}", "{data}, {}, {model:(2)2} partial(sum: data)", "{data grain 64}", "{a, b:(1)2}, {grain 3*n}", "partial(sum: data)",
                                "{} partial(max: a; sum: b, c)", "{a grain 64*n + 1}"}) {
    const Sharding sharding = parse_sharding(canonical);
    EXPECT_EQ(text(sharding), canonical);
    EXPECT_EQ(parse_sharding(text(sharding)), sharding);
  }
  EXPECT_EQ(text(parse_sharding(" { b ,a } partial( sum : z; any: c ) ")), "{b, a} partial(any: c; sum: z)");
  EXPECT_TRUE(Sharding::replicated(3).is_replicated());
  EXPECT_FALSE(parse_sharding("partial(sum: a)").is_replicated());
  EXPECT_TRUE(parse_sharding("{}, {a}").splits({"a"}));
  EXPECT_FALSE(parse_sharding("{} partial(sum: a)").splits({"a"}));
}

TEST(ShardingTest, BadTextIsOneClearError) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"data", "sharding:1:1: found 'data', wanted '{' or 'partial'"},
      {"{data", "sharding:1:6: found the end, wanted '}'"},
      {"{data},", "sharding:1:8: found the end, wanted '{'"},
      {"{data:2}", "sharding:1:7: found '2', wanted '('"},
      {"{data:(0)2}", "sharding:1:10: part of axis 'data': wanted sizes of at least 1"},
      {"{data grain 0}", "sharding:1:14: grain 0, wanted at least 1"},
      {"{} partial(mean: a)", "sharding:1:16: found reduction 'mean', wanted sum, product, max, min, any or all"},
      {"{} partial()", "sharding:1:12: found ')', wanted a reduction"},
      {"{} {}", "sharding:1:4: found '{', wanted ',' or 'partial'"},
  };
  for (const auto& [input, message] : cases) {
    try {
      parse_sharding(input);
      ADD_FAILURE() << "no error for " << input;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), message) << input;
    }
  }
}

TEST(ShardingTest, ChecksAgainstTheMesh) {
  const Mesh mesh = parse_mesh("data=2,model=8");
  for (const char* sound : {"{data}, {model}", "{model:(1)2}, {model:(2)4}", "{data, model}, {}", "{}, {} partial(sum: data)", "{model:(4)2}, {model:(1)2}"})
    EXPECT_NO_THROW(check_sharding(parse_sharding(sound), 2, mesh)) << sound;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "sharding: found 1 dims, the tensor has 2"},
      {"{x}, {}", "sharding: found axis 'x', the mesh has 'data=2,model=8'"},
      {"{data}, {data}", "sharding: axis data is used twice in {data}, {data}"},
      {"{data}, {} partial(sum: data)", "sharding: axis data is used twice in {data}, {} partial(sum: data)"},
      {"{model:(1)4}, {model:(2)4}", "sharding: axis model:(2)4 overlaps another part of it in {model:(1)4}, {model:(2)4}"},
      {"{model}, {model:(2)2}", "sharding: axis model:(2)2 overlaps another part of it in {model}, {model:(2)2}"},
      {"{model:(2)3}, {}", "sharding: part model:(2)3 does not divide axis model of size 8"},
      {"{model:(1)16}, {}", "sharding: part model:(1)16 does not divide axis model of size 8"},
      {"{model:(4611686018427387904)4}, {}", "sharding: part model:(4611686018427387904)4 does not divide axis model of size 8"},
  };
  for (const auto& [input, message] : cases) {
    try {
      check_sharding(parse_sharding(input), 2, mesh);
      ADD_FAILURE() << "no error for " << input;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), message) << input;
    }
  }
}

TEST(MeshTest, TextAndCoordinates) {
  const Mesh mesh = parse_mesh(" data=2, model=3 ");
  EXPECT_EQ(mesh.text(), "data=2,model=3");
  EXPECT_EQ(parse_mesh(mesh.text()), mesh);
  EXPECT_EQ(mesh.device_count(), 6);
  EXPECT_EQ(parse_mesh("").device_count(), 1);
  EXPECT_EQ(coordinates_of(mesh, 4), (Coordinates{1, 1}));
  for (int64_t device = 0; device < 6; ++device) EXPECT_EQ(device_of(mesh, coordinates_of(mesh, device)), device);
  EXPECT_THROW(coordinates_of(mesh, 6), InternalError);
  EXPECT_THROW(device_of(mesh, {2, 0}), InternalError);
  EXPECT_EQ(coordinate_symbol("data").text(), "coord.data");
}

TEST(MeshTest, BadTextIsOneClearError) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"2=data", "mesh:1:1: found '2', wanted an axis name, as in data=2"},
      {"data", "mesh:1:5: found the end, wanted '='"},
      {"data=0", "mesh:1:6: axis 'data' has size 0, wanted at least 1"},
      {"data=-2", "mesh:1:6: axis 'data' has size -2, wanted at least 1"},
      {"data=2,data=2", "mesh:1:8: axis 'data' is given twice"},
      {"data=2,", "mesh:1:8: found the end, wanted an axis name, as in data=2"},
      {"data=1048577", "mesh:1:6: more than 1048576 devices"},
      {"a=1024,b=1024,c=2", "mesh:1:17: more than 1048576 devices"},
      {"data=2x", "mesh:1:6: found '2x', wanted an integer"},
      {"data=99999999999999999999", "mesh:1:6: integer does not fit 64 bits"},
      {"data=2 model=2", "mesh:1:8: found 'model', wanted the end"},
  };
  for (const auto& [input, message] : cases) {
    try {
      parse_mesh(input);
      ADD_FAILURE() << "no error for " << input;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), message) << input;
    }
  }
}

TEST(TensorTypeTest, TextReadsBack) {
  for (const char* canonical :
       {"f32[]", "f32[batch, 64]", "bf16[floordiv(n, 2), min(a, b)]<{data}, {}>", "i64[0]", "f64[]<partial(sum: data)>", "bool[n]<{a grain 2*n}>"}) {
    EXPECT_EQ(text(parse_tensor_type(canonical)), canonical);
    EXPECT_EQ(parse_tensor_type(text(parse_tensor_type(canonical))), parse_tensor_type(canonical));
  }
  EXPECT_TRUE(same_dtype_and_shape(parse_tensor_type("f32[4]<{data}>"), parse_tensor_type("f32[4]")));
  EXPECT_FALSE(parse_tensor_type("f32[4]<{data}>") == parse_tensor_type("f32[4]"));
  for (const char* bad : {"", "f33[]", "f32", "f32[", "f32[4", "f32[4]]", "f32[4,]", "f32[4]<{}", "f32[4]<>", "f32[4]<{}, {}>", "f32[(4]", "[4]"})
    EXPECT_THROW(parse_tensor_type(bad), UserError) << bad;
}

}  // namespace tensor_sharding_test
}  // namespace stepgraph
