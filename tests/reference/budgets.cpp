// SPDX-License-Identifier: Apache-2.0
// Memory budgets: what is made again has the same bits, a smaller budget takes no more, and what a plan says is what is mapped.
#include <gtest/gtest.h>

#include <optional>

#include "stepgraph/backend/fit_budget.h"
#include "stepgraph/backend/run_once.h"
#include "stepgraph/base/error.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "tests/reference/step_programs.h"

namespace stepgraph {
namespace budgets_test {

using testing::Program;
using testing::ZooModel;

/// Large enough for their values to be more than the pages that arenas are made of.
std::vector<ZooModel> models() {
  return {
      {"gpt", {{"layers", "3"}, {"width", "64"}, {"heads", "4"}, {"context", "64"}, {"vocabulary", "61"}, {"dropout", "0.1"}}, 16, 61},
      {"llama", {{"layers", "2"}, {"width", "64"}, {"heads", "4"}, {"kv_heads", "2"}, {"context", "64"}, {"vocabulary", "61"}}, 16, 61},
      {"resnet", {{"size", "24"}, {"width", "8"}, {"classes", "7"}, {"stem", "small"}, {"blocks", "2,2,1,1"}}, 24, 7},
      {"lstm", {{"layers", "2"}, {"width", "32"}, {"context", "32"}, {"vocabulary", "61"}}, 32, 61},
  };
}

Target small_target() {
  Target target = host_target(2, 1);
  target.granularity_bytes = 64;
  return target;
}

BackendOptions with_budget(const Program& program, const MemoryBudget& budget) {
  BackendOptions options{.backend = Backend::Full, .threads = 2, .memory_budget = budget};
  for (const auto& [symbol, value] : program.symbols) options.largest[symbol] = value;
  return options;
}

class Budgets : public ::testing::TestWithParam<ZooModel> {};

TEST_P(Budgets, GiveEqualBits) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  for (const int64_t micro_batches : {1, 2}) {
    const Program program = testing::zoo_program(GetParam(), DType::F32, micro_batches, "");
    const auto run = [&](const MemoryBudget& budget, bool poison) {
      BackendOptions options = with_budget(program, budget);
      options.poison = poison;
      return run_local_once(program.local, "step", program.inputs, options, program.symbols);
    };
    const std::vector<Literal> wanted = run({}, false);
    int met = 0;
    const std::vector<const char*> budgets = micro_batches == 1 ? std::vector<const char*>{"75%", "50%", "min"} : std::vector<const char*>{"min"};
    for (const char* text : budgets) {
      try {
        testing::expect_same_outputs(run(parse_memory_budget(text), met == 0), wanted, 0, program.local, program.name + " within " + text);
        ++met;
      } catch (const UserError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("memory budget: found ")) << error.what();
      }
    }
    EXPECT_GE(met, GetParam().name == "lstm" || micro_batches > 1 ? 1 : 2) << program.name;
  }
}

TEST_P(Budgets, SmallerOnesTakeNoMore) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const Program program = testing::zoo_program(GetParam(), DType::F32, 1, "");
  const auto plan_within_text = [&](const char* text, PlanReport* report) {
    return compile_plan(program.local, with_budget(program, parse_memory_budget(text)), small_target(), nullptr, report);
  };
  PlanReport told;
  const StepPlan smallest = plan_within_text("min", &told);
  const BudgetReport& ladder = told.budget;
  const int64_t without = ladder.rungs[0].memory.total(), least = planned_memory(smallest).total();
  EXPECT_EQ(least, ladder.rungs[ladder.chosen].memory.total());
  EXPECT_GT(ladder.rungs.size(), 2U);
  if (GetParam().name != "lstm") {
    EXPECT_LT(least, without * 3 / 4) << "what forward keeps is most of it";
  }
  int64_t before = without;
  for (int share = 100; share > 0; share -= 20) {
    const std::string text = std::to_string(share) + "%";
    const int64_t budget = without * share / 100;
    if (budget < least) {
      try {
        plan_within_text(text.c_str(), nullptr);
        ADD_FAILURE() << text;
      } catch (const UserError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("memory budget: found ")) << error.what();
      }
      continue;
    }
    const StepPlan plan = plan_within_text(text.c_str(), nullptr);
    const int64_t bytes = planned_memory(plan).total();
    EXPECT_LE(bytes, budget) << text;
    EXPECT_LE(bytes, before) << text;
    EXPECT_EQ(plan.freeze_hash, smallest.freeze_hash);
    before = bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Budgets, ::testing::ValuesIn(models()), [](const auto& info) { return info.param.name; });

TEST(FreezeHash, IsOfWhatChoosesNumbersAlone) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const Program program = testing::zoo_program(models()[0], DType::F32, 1, "");
  const auto hash = [&](const BackendOptions& changed, Target target) {
    BackendOptions options = changed;
    options.largest = with_budget(program, {}).largest;
    return compile_plan(program.local, options, target, nullptr).freeze_hash;
  };
  const Target target = small_target();
  const std::string wanted = hash({.backend = Backend::Full}, target);
  EXPECT_EQ(wanted.size(), 32U);
  Target three = target;
  three.threads = 3;
  EXPECT_EQ(hash({.backend = Backend::Full}, three), wanted);
  EXPECT_EQ(hash({.backend = Backend::Full, .skip = {"fuse", "recompute"}}, target), wanted);
  BackendOptions recorded{.backend = Backend::Full};
  recorded.largest = with_budget(program, {}).largest;
  for (const auto& [problem, count] : products_of(compile_plan(program.local, recorded, target, nullptr)))
    recorded.tuning.matmuls[problem].library = choice_by_rule(problem).library == GemmLibrary::OneDnn ? GemmLibrary::OpenBlas : GemmLibrary::OneDnn;
  EXPECT_NE(hash(recorded, target), wanted);
  EXPECT_NE(hash({.backend = Backend::Full, .skip = {"canonicalize"}}, target), wanted);
}

}  // namespace budgets_test
}  // namespace stepgraph
