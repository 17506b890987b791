// SPDX-License-Identifier: Apache-2.0
// Random modules under every compiled back end, with passes on and off, against the oracle; and to the bit alike for any number of threads, fused or not, where
// dead memory is NaN. `STEPGRAPH_SEEDS=17` or `=1-2000` says which are run by LongRandomModules.
#include <gtest/gtest.h>

#include <optional>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/reference/interpreter.h"
#include "tests/support/effort.h"
#include "tests/support/random_module.h"
#include "tests/support/rounding_noise.h"
#include "tests/support/seeds.h"
#include "tests/support/shrink.h"

namespace stepgraph {
namespace random_modules_test {

using testing::Dice;

/// How one module is compiled, besides once by everything on one thread.
struct Ways {
  BackendOptions same_bits;
  std::optional<BackendOptions> other;  ///< of half of the modules: each is a compilation more
  std::string text;
};
Ways random_ways(Dice& dice) {
  Ways ways;
  // Sometimes with room for more than there is.
  ways.same_bits = {.backend = Backend::Full, .threads = 2 + static_cast<int>(dice.roll(2)), .poison = dice.chance(2), .canaries = dice.chance(2)};
  if (dice.chance(2)) ways.same_bits.largest["n"] = 13;
  if (dice.chance(2)) ways.same_bits.skip = {dice.chance(2) ? "fuse" : "recompute"};
  if (dice.chance(2)) {
    BackendOptions other{.backend = static_cast<Backend>(dice.roll(3)), .threads = 1 + static_cast<int>(dice.roll(3))};
    for (const std::string& pass : flat_pass_names())
      if (pass != "flatten" && dice.chance(other.backend == Backend::Full ? 2 : 6)) other.skip.push_back(pass);
    ways.other = other;
  }
  for (const BackendOptions* options : {&ways.same_bits, ways.other ? &*ways.other : nullptr}) {
    if (options == nullptr) continue;
    ways.text += std::string(ways.text.empty() ? "" : "; ") + std::string(name(options->backend)) + " on " + std::to_string(options->threads) + (options->poison ? " poisoned" : "") + (options->canaries ? " with canaries" : "");
    for (const std::string& pass : options->skip) ways.text += " -" + pass;
  }
  return ways;
}

/// What is wrong with the module; "" if nothing is.
std::string fault(const Module& module, const std::vector<Literal>& inputs, const SymbolValues& symbols, const Ways& ways) {
  const GraphId graph = module.entries.front().graph;
  const std::vector<Literal> wanted = evaluate_graph(module, graph, inputs, symbols);
  const std::vector<double> allowed = testing::allowed_differences(module, graph, inputs, symbols);
  const std::vector<Literal> full = run_once(module, "main", inputs, {.backend = Backend::Full, .threads = 1}, symbols);
  const std::vector<Literal> same = run_once(module, "main", inputs, ways.same_bits, symbols);
  const std::vector<Literal> other = ways.other ? run_once(module, "main", inputs, *ways.other, symbols) : full;
  for (size_t o = 0; o < wanted.size(); ++o) {
    const std::string& name = module.graph(graph).outputs[o].role.name;
    if (std::string found = testing::compare_within(full[o], wanted[o], allowed[o]); !found.empty()) return "output " + name + " under full: " + found;
    if (!(same[o] == full[o])) return "output " + name + " has other bits in the first of these ways: found " + same[o].text(20) + ", wanted " + full[o].text(20);
    if (std::string found = testing::compare_within(other[o], wanted[o], allowed[o]); !found.empty()) return "output " + name + " in the second of these ways: " + found;
  }
  return "";
}

std::string fault_or_error(const Module& module, const std::vector<Literal>& inputs, const SymbolValues& symbols, const Ways& ways) {
  try {
    return fault(module, inputs, symbols, ways);
  } catch (const std::exception& error) {
    return error.what();
  }
}

bool check_seed(uint64_t seed) try {
  Dice dice(seed);
  const testing::RandomModule made = testing::random_module(dice);
  const Ways ways = random_ways(dice);
  const std::string found = fault_or_error(made.module, made.inputs, made.symbols, ways);
  if (found.empty()) return true;
  const testing::SmallProgram small = testing::shrink(made.module, made.inputs, made.symbols, [&](const Module& module, const std::vector<Literal>& inputs) {
    evaluate_graph(module, module.entries.front().graph, inputs, made.symbols);
    return !fault_or_error(module, inputs, made.symbols, ways).empty();
  });
  ADD_FAILURE() << "seed " << seed << " (" << ways.text << "): " << found << "\nsmallest: " << fault_or_error(small.module, small.inputs, made.symbols, ways) << "\n" << small.text();
  return false;
} catch (const std::exception& error) {
  ADD_FAILURE() << "seed " << seed << ": " << error.what();
  return false;
}

TEST(RandomModules, MeanTheSameUnderEveryBackEnd) { testing::check_seeds({1, static_cast<uint64_t>(testing::rounds(100))}, check_seed); }
/// Values without elements, stored by forms that reduce them as well.
TEST(RandomModules, ThoseThatFoundFaultsStayRight) {
  for (const uint64_t seed : {847, 997, 2027, 2037}) EXPECT_TRUE(check_seed(seed));
}
TEST(LongRandomModules, MeanTheSameUnderEveryBackEnd) { testing::check_seeds(testing::seeds_of_command({101, 2100}), check_seed); }

}  // namespace random_modules_test
}  // namespace stepgraph
