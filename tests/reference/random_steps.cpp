// SPDX-License-Identifier: Apache-2.0
// Random modules that replace their states, step by step: a state that is read, turned, swapped with another or kept while it is written in place.
#include <gtest/gtest.h>

#include <optional>

#include "stepgraph/backend/backend.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/run/comm/threads.h"
#include "tests/support/effort.h"
#include "tests/support/random_module.h"
#include "tests/support/rounding_noise.h"
#include "tests/support/seeds.h"

namespace stepgraph {
namespace random_steps_test {

using testing::Dice;
constexpr int steps = 3;

struct Stepped {
  std::vector<std::vector<Literal>> outputs;  ///< by step: user outputs and new states, as the entry's
};
/// Each step starts from the given states, so that no difference grows.
Stepped run(const Module& local, const std::vector<std::vector<Literal>>& inputs, const BackendOptions& options) {
  const Graph& graph = local.graph(local.entry("main"));
  const MeshBinding binding = bind_mesh(local.mesh);
  Stepped stepped;
  run_ranks(1, [&](int, Communicator& group) {
    const std::unique_ptr<Executor> executor = make_executors(options)(local, binding);
    executor->connect(group);
    for (const std::vector<Literal>& values : inputs) {
      EntryInputs arguments;
      for (size_t i = 0; i < graph.inputs.size(); ++i) {
        const Role& role = graph.inputs[i].role;
        if (role.kind == RoleKind::Seed) arguments.seed = values[i].integer_at(0);
        else if (role.kind == RoleKind::Step) arguments.step = values[i].integer_at(0);
        else executor->write_state(role.name, values[i]);
      }
      EntryResults results = executor->run("main", arguments);
      executor->commit();
      std::vector<Literal> found;
      for (const GraphOutput& output : graph.outputs)
        found.push_back(output.role.kind == RoleKind::NewState ? executor->read_state(output.role.name) : results.outputs.at(output.role.name));
      stepped.outputs.push_back(std::move(found));
    }
  });
  return stepped;
}

std::string fault(const Module& local, std::vector<Literal> inputs, Dice& dice) {
  const GraphId id = local.entry("main");
  const Graph& graph = local.graph(id);
  // The inputs of each step, and what must come of them.
  std::vector<std::vector<Literal>> given, wanted;
  std::vector<std::vector<double>> allowed;
  for (int step = 0; step < steps; ++step) {
    given.push_back(inputs);
    wanted.push_back(run(local, {inputs}, {.backend = Backend::Reference}).outputs[0]);
    allowed.push_back(testing::allowed_differences(local, id, inputs, {}));
    for (size_t o = 0; o < graph.outputs.size(); ++o)
      for (size_t i = 0; i < graph.inputs.size(); ++i)
        if (graph.outputs[o].role.kind == RoleKind::NewState && is_state(graph.inputs[i].role.kind) && graph.inputs[i].role.name == graph.outputs[o].role.name)
          inputs[i] = wanted.back()[o];
  }
  std::vector<BackendOptions> ways = {{.backend = Backend::Full, .threads = 1},
                                      {.backend = Backend::Full, .threads = 2 + static_cast<int>(dice.roll(2)), .poison = dice.chance(2), .canaries = dice.chance(2)}};
  if (dice.chance(2)) ways[1].skip = {"fuse"};
  if (dice.chance(2)) ways.push_back({.backend = dice.chance(2) ? Backend::Eager : Backend::Segment, .threads = 2});
  std::optional<Stepped> first;
  for (const BackendOptions& way : ways) {
    const std::string what = std::string(name(way.backend)) + " on " + std::to_string(way.threads) + (way.skip.empty() ? "" : " not fused") + (way.poison ? " poisoned" : "");
    const Stepped found = run(local, given, way);
    for (size_t step = 0; step < given.size(); ++step) {
      for (size_t o = 0; o < graph.outputs.size(); ++o) {
        const std::string where = what + ", step " + std::to_string(step) + ", " + graph.outputs[o].role.name + ": ";
        if (std::string problem = testing::compare_within(found.outputs[step][o], wanted[step][o], allowed[step][o]); !problem.empty()) return where + problem;
        if (first && way.backend == Backend::Full && !(found.outputs[step][o] == first->outputs[step][o])) return where + "other bits than on one thread";
      }
    }
    if (!first) first = found;
  }
  return "";
}

bool check_seed(uint64_t seed) {
  Dice dice(seed);
  std::string problem, text;
  try {
    testing::RandomModule made = testing::random_module(dice, {.symbols = false, .states = true});
    text = print_module(made.module, PrintOptions{.places = false, .scopes = false});
    problem = fault(compile(std::move(made.module)), made.inputs, dice);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  EXPECT_EQ(problem, "") << "seed " << seed << "\n" << text;
  return problem.empty();
}

TEST(RandomSteps, ReplaceTheirStatesAsTheOracleDoes) { testing::check_seeds({1, static_cast<uint64_t>(testing::rounds(30))}, check_seed); }
TEST(LongRandomSteps, ReplaceTheirStatesAsTheOracleDoes) { testing::check_seeds(testing::seeds_of_command({31, 500}), check_seed); }

}  // namespace random_steps_test
}  // namespace stepgraph
