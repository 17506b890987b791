// SPDX-License-Identifier: Apache-2.0
// Random programs with gradients under random layouts of their inputs on random meshes, against one rank. A failure prints its seed.
#include <gtest/gtest.h>

#include "stepgraph/compile/ir/text.h"
#include "tests/parallel/mesh_check.h"
#include "tests/support/random_module.h"

namespace stepgraph {
namespace random_programs_test {

using testing::Dice;

Sharding random_layout(const Mesh& mesh, int64_t rank, Dice& dice) {
  Sharding layout = Sharding::replicated(static_cast<size_t>(rank));
  for (const MeshAxis& axis : mesh.axes) {
    std::vector<AxisRef> parts = {{axis.name, 1, 0}};
    if (axis.size == 4 && dice.chance(2)) parts = {{axis.name, 1, 2}, {axis.name, 2, 2}};
    for (const AxisRef& part : parts)
      if (rank > 0 && !dice.chance(3)) layout.dims[static_cast<size_t>(dice.roll(rank))].axes.push_back(part);
  }
  return layout;
}

/// How many loops and calls the programs hold and how many Reshards their layouts need.
struct Counts {
  int64_t control = 0, reshards = 0;
};
void check_seed(uint64_t seed, Counts& counts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  const testing::RandomModule made = testing::random_module(dice, {.floats = {DType::F64}, .integers = false, .largest_size = 7, .elements_max = 600});
  const Module& module = made.module;
  SCOPED_TRACE(print_module(module, PrintOptions{.places = false, .scopes = false}));
  const std::vector<Literal>& inputs = made.inputs;
  const std::vector<Literal> wanted = on_one_rank(module, inputs, made.symbols);
  const char* meshes[] = {"a=2", "a=3", "a=4", "a=2,b=2", "a=2,b=3"};
  const std::string mesh = meshes[dice.roll(5)];
  ShardingOptions options;
  std::string layouts;
  for (size_t i = 0; i + 2 < inputs.size(); ++i) {  // the last two are seed and step
    options.inputs.push_back({"x" + std::to_string(i), std::nullopt, random_layout(parse_mesh(mesh), static_cast<int64_t>(inputs[i].rank()), dice)});
    layouts += " " + text(options.inputs.back().sharding);
  }
  try {
    CompileOptions sharded;
    sharded.mesh = parse_mesh(mesh);
    sharded.sharding = options;
    sharded.stop_at = "propagate";
    const Module resharded = compile(module, sharded);
    counts.reshards += count_nodes<Reshard>(resharded, resharded.entry("main"));
    counts.control += count_nodes<Loop>(resharded, resharded.entry("main")) + count_nodes<Call>(resharded, resharded.entry("main"));
    expect_close(on_mesh(module, mesh, inputs, options, made.symbols), wanted, 1e-9, mesh + layouts);
  } catch (const std::exception& error) {
    FAIL() << mesh << layouts << ": " << error.what();
  }
}

TEST(RandomPrograms, AnyLayoutMeansTheSame) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 500 && !HasFailure(); ++seed) check_seed(seed, counts);
  EXPECT_GT(counts.reshards, 2000);
  EXPECT_GT(counts.control, 200);
}
TEST(LongRandomPrograms, AnyLayoutMeansTheSame) {
  Counts counts;
  for (uint64_t seed = 1000; seed <= 21000 && !HasFailure(); ++seed) check_seed(seed, counts);
}

}  // namespace random_programs_test
}  // namespace stepgraph
