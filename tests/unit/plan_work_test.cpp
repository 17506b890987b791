// SPDX-License-Identifier: Apache-2.0
// What is told of a plan: the work of its instructions, the lives of its buffers, what it keeps.
#include <gtest/gtest.h>

#include <map>

#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/backend/memory_use.h"
#include "stepgraph/program/instruction_work.h"
#include "tests/support/plan_samples.h"

namespace stepgraph {
namespace plan_work_test {

StepPlan sample() { return parse_plan(testing::plan_sample("step")); }

TEST(PlanWork, OfEachKindOfInstruction) {
  const StepPlan plan = sample();
  const PlanEntry& entry = plan.entries[0];
  struct Wanted {
    size_t instruction;
    double read, written, flops;
  };
  for (const Wanted& wanted : {Wanted{0, 4 * (32 + 16), 4 * 32, 2 * 8 * 4 * 4},               // matmul
                               Wanted{1, 4 * (32 + 4), 4 * 32, 2 * 32},                        // a value in place, a row for all
                               Wanted{2, 4 * 64, 4 * (32 + 8), 3 * 32},                        // a sum counts its elements
                               Wanted{5, 4 * (32 + 32), 4 * 16, 2 * 8 * 4 * 4},                // a transposed operand
                               Wanted{6, 8 * 4 * (4 + 4), 8 * 4 * (4 + 4), 8 * (4 + 4)},       // a loop
                               Wanted{9, 4 * (2 * 16 + 2 * 4 + 1), 4 * (16 + 4), 2 * (16 + 4)}}) {  // launches share a number
    const InstructionWork work = instruction_work(plan, entry, entry.instructions[wanted.instruction], {{"batch", 8}});
    EXPECT_EQ(work.read, wanted.read) << wanted.instruction;
    EXPECT_EQ(work.written, wanted.written) << wanted.instruction;
    EXPECT_EQ(work.flops, wanted.flops) << wanted.instruction;
  }
  EXPECT_EQ(instruction_work(plan, entry, entry.instructions[0], {{"batch", 2}}).flops, 2 * 2 * 4 * 4);
}

TEST(PlanWork, OfCallsOfLibraries) {
  const StepPlan plan = parse_plan(testing::plan_sample("calls"));
  const PlanEntry& entry = plan.entries[0];
  const SymbolValues values = {{"batch", 4}, {"local", 2}, {"coord.data", 0}};
  std::map<std::string, InstructionWork> first;
  for (const Instruction& instruction : entry.instructions) first.try_emplace(kind_text(instruction.op), instruction_work(plan, entry, instruction, values));
  EXPECT_EQ(first["convolution"].flops, 2.0 * (2 * 3 * 8 * 8) * (2 * 3 * 3));
  EXPECT_EQ(first["convolution"].read, 4.0 * (2 * 128 + 54));
  EXPECT_EQ(first["attention"].flops, 2 * 2.0 * (2 * 4 * 4 * 4) / 2 * 4);  // causal: half of the scores
  EXPECT_EQ(first["pool"].written, 4.0 * 64 + 64);
  EXPECT_EQ(first["collective"].read, 4.0 * 54);
}

TEST(PlanWork, LivesOfBuffers) {
  const StepPlan plan = sample();
  const BufferLives found = arena_lives(plan.entries[0]);
  EXPECT_EQ(found.moments.size(), 12u);
  EXPECT_EQ(place_text(found.moments[7].at), "6.1");
  std::map<std::string, std::pair<int, int>> lives;
  for (const BufferLife& life : found.lives) lives[plan.entries[0].buffers[static_cast<size_t>(life.buffer)].label] = {life.first, life.last};
  const std::map<std::string, std::pair<int, int>> wanted = {{"h", {0, 2}},    {"d", {2, 8}},   {"rows", {2, 3}}, {"loss", {3, 12}}, {"dw", {5, 11}},
                                                             {"db", {4, 9}},   {"row", {6, 7}}, {"out", {6, 12}}, {"carried", {8, 10}}};
  EXPECT_EQ(lives, wanted);
  const LivePeak peak = live_bytes_peak(found);
  EXPECT_EQ(peak.moment, 6);
  EXPECT_EQ(peak.bytes, 2 * 128 + 4 * 64);
}

TEST(PlanWork, WhatForwardKeeps) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const StepPlan plan = sample();
  const MemoryUse use = memory_use(plan);
  ASSERT_EQ(use.entries.size(), 1u);
  EXPECT_EQ(use.entries[0].kept_bytes, 128);  // "d" alone
  EXPECT_EQ(use.entries[0].kept.size(), 1u);
  EXPECT_EQ(use.entries[0].input_bytes, 4 * (32 + 32 + 1));
  EXPECT_EQ(use.constant_bytes, 4);
  EXPECT_EQ(use.entries[0].used_bytes, 512 + 64);
  const std::vector<std::pair<RoleKind, int64_t>> states = {{RoleKind::Parameter, 80}, {RoleKind::OptimizerState, 64}};
  EXPECT_EQ(use.states, states);
}

}  // namespace plan_work_test
}  // namespace stepgraph
