// SPDX-License-Identifier: Apache-2.0
// What the verifier of plans accepts and refuses, a fault at a time.
#include <gtest/gtest.h>

#include <chrono>

#include "stepgraph/base/error.h"
#include "stepgraph/program/form_accesses.h"
#include "stepgraph/program/form_text.h"
#include "stepgraph/program/index_bounds.h"
#include "stepgraph/program/verify_plan.h"
#include "tests/support/plan_samples.h"

namespace stepgraph {
namespace plan_verify_test {

using testing::plan_sample;
using testing::plan_with;

std::string verdict(const std::string& plan, const SymbolValues& sizes) {
  try {
    verify(parse_plan(plan), sizes);
    return "sound";
  } catch (const InternalError& error) {
    return error.what();
  }
}

TEST(PlanVerify, SamplesAreSoundAtEverySize) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8}) {
    EXPECT_EQ(verdict(plan_sample("step"), {{"batch", rows}}), "sound") << rows;
    EXPECT_EQ(verdict(plan_sample("parts"), {{"rows", rows}}), "sound") << rows;
    EXPECT_EQ(verdict(plan_sample("updates"), {{"batch", rows}}), "sound") << rows;
  }
  EXPECT_EQ(verdict(plan_sample("calls"), {{"batch", 4}}), "sound");
  EXPECT_NE(verdict(plan_sample("step"), {{"batch", 9}}).find("b7 'h' takes 144 bytes, reserved are 128"), std::string::npos);
  EXPECT_NE(verdict(plan_sample("step"), {}).find("batch"), std::string::npos);
}

struct Change {
  std::string from, to, message;
};
void expect_refused(const std::string& sample, const SymbolValues& sizes, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    const std::string found = verdict(plan_with(plan_sample(sample), change.from, change.to), sizes);
    EXPECT_NE(found.find(change.message), std::string::npos) << change.from << " -> " << change.to << "\nfound:  " << found << "\nwanted: " << change.message;
  }
}

TEST(PlanVerify, MemoryOfAStep) {
  expect_refused(
      "step", {{"batch", 3}},
      {
          {"granularity 4096", "granularity 8192", "arena of 4096 bytes, wanted a multiple of 8192"},
          {"threads 2", "threads 0", "made for 0 threads"},
          {"commit 9", "commit 12", "the commit begins at 12 of 11 instructions"},
          {"buffer b8 = arena at 128", "buffer b8 = arena at 130", "b8 'd' lies at 130, wanted a multiple of 64"},
          {"buffer b13 = arena at 512", "buffer b13 = arena at 4096", "b13 'row' of 64 bytes at 4096 lies outside of the arena of 4096"},
          {"b9 = arena at 256 bytes 64 f32[batch]", "b9 = arena at 256 bytes 64 f32[6*batch]", "b9 'rows' takes 72 bytes, reserved are 64"},
          {"b4 = state 1 f32[4]", "b4 = state 1 f32[3]", "b4 'b' has 12 bytes, what it stands for has 16"},
          {"b4 = state 1 f32[4]", "b4 = state 1 i32[4]", "b4 'b' holds i32, what it stands for f32"},
          {"b4 = state 1", "b4 = state 3", "b4 'b' stands for number 3 of 3"},
          {"b4 = state 1 f32[4]", "b4 = state 0 f32[16]", "b4 'b' is a second buffer of the same memory"},
          {"input batch \"y\" f32 b1", "input batch \"y\" f32 b0", "stands for input 1, which is another buffer"},
          {"label \"linear\"", "label \"linear\"\n  meet form f5 (b99, b10)", "buffer b99 does not exist"},
          {"form f3 (b8, b12)", "form f3 (b8 at 4, b12)", "instruction 4 (db): reads bytes 16 to 64 of b8 'd', which has 48"},
          {"form f3 (b8, b12)", "form f3 (b8 at -1, b12)", "instruction 4 (db): reads bytes -4 to 44 of b8"},
          {"b3[4, 4] -> b7[batch, 4]", "b3[4, 4] -> b7[4, batch]", "matmul of [3, 4] and [4, 4] into [4, 3]"},
          {"[4, batch] strides [1, 4]", "[4, batch] strides [2, 4]", "neither of the last strides"},
          {"b3[4, 4] -> b7[batch, 4]", "b3[4, 4] -> b7[batch, 4] strides [1, 1]", "is written and may hold an element twice"},
          {"meet matmul b0[batch, 4]", "meet matmul b7[batch, 4]", "writes bytes of b7 'h' that it also reads as b7 'h'"},
          {"meet matmul b0[batch, 4], b3[4, 4] -> b7", "meet matmul b8[batch, 4], b3[4, 4] -> b7", "reads byte 0 of b8 'd', which nothing has written"},
          {"buffer b9 = arena at 256", "buffer b9 = arena at 128", "instruction 2 (difference): writes bytes of b8 'd' that it also writes as b9 'rows'"},
          {"buffer b14 = arena at 0", "buffer b14 = arena at 384", "instruction 9 (sgd): reads byte 0 of b11 'dw', which b14 'out' has overwritten"},
          {"buffer b10 = arena at 320", "buffer b10 = arena at 512", "sound"},  // beside a private buffer, which lies elsewhere
          {"buffer b10 = arena at 320", "buffer b10 = arena at 256", "writes bytes of b10 'loss' that it also reads as b9 'rows'"},
      });
}

TEST(PlanVerify, StatesAndOutputsOfAStep) {
  expect_refused("step", {{"batch", 3}},
                 {
                     {"commit 9", "commit 10", "instruction 9 (sgd): writes the state b3 'w' before the commit"},
                     {"commit 9", "commit 8", "sound"},
                     {"commit 9", "commit 5", "reads byte 0 of b14 'out', which b7 'h' has overwritten"},
                     {"-> b7[batch, 4] f32", "-> b0[batch, 4] f32", "writes bytes of b0 'x' that it also reads"},
                     {"(b8, b15) label", "(b8, b1) label", "writes b1 'y', which is an input"},
                     {"(b8, b15) label", "(b8, b6) label", "writes bytes 0 to 16 of b6, which has 4"},
                     {"  new_state \"m\"\n", "", "state 'm' is written and no new state"},
                     {"  new_state \"m\"\n", "  new_state \"m\"\n  new_state \"m\"\n", "new state 'm' is listed twice"},
                     {"form f4 (b5, b11, b6)", "form f4 (b11, b11 at 0, b6)", "writes bytes of b11 'dw' that it also reads"},
                     {"form f4 (b5, b11, b6) (16)", "form f4 (b5, b11, b6) (0)", "new state 'm' is not written"},
                     {"output loss_numerator f32 b10", "output loss_numerator f32 b13", "reads byte 0 of b13 'row', which nothing has written"},
                     {"(b3, b11, b2) (16)", "(b3, b11, b2) (16), (b3, b11, b2) (16)", "launch 1 reads what an earlier launch of the call writes"},
                     {"(b3, b11, b2) (16)", "(b3, b11, b2) ()", "launch of 3 operands and 0 sizes, the form has 3 and 1"},
                 });
}

TEST(PlanVerify, ThreadsOfAStep) {
  const std::vector<Change> changes = {
      {"meet form f0 (b7, b4)", "form f0 (b7, b4)",
       "instruction 1 (bias + relu): reads bytes of b7 'h' without a meeting, which an instruction on another thread may write"},
      {"meet one_thread form f2", "one_thread form f2", "instruction 3 (loss): reads bytes of b9 'rows' without a meeting"},
      {"meet repeat i", "repeat i", "sound"},  // what it writes was touched before the last meeting
      {"meet form f5 (b8, b15)", "form f5 (b8, b15)", "sound"},
      {"meet form f0 (b15, b12)", "form f0 (b15, b12)", "instruction 8.0 (sweep): reads bytes of b15 'carried' without a meeting"},
      {"meet form f4", "form f4", "sound"},  // the commit is a meeting
  };
  expect_refused("step", {{"batch", 3}}, changes);
  for (const Change& change : changes) {
    const std::string alone = plan_with(plan_with(plan_sample("step"), change.from, change.to), "threads 2", "threads 1");
    EXPECT_EQ(verdict(alone, {{"batch", 3}}), "sound") << change.from;
  }
}

TEST(PlanVerify, RepeatsOfAStep) {
  expect_refused("step", {{"batch", 3}},
                 {
                     {"(b13, b14 at 4*i)", "(b13, b14 at 2*i)", "a piece of the repeat 'i' writes bytes of b14 'out' that another piece writes"},
                     {"(b13, b14 at 4*i)", "(b13, b14 at 4*i + 4)", "writes bytes 48 to 64 of b14 'out', which has 48"},
                     {"(b8 at 4*i, b13)", "(b14 at 4*i, b13)", "which b7 'h' has overwritten"},
                     {"(b13, b14 at 4*i)", "(b13, b8 at 8 - 4*i)", "a piece of the repeat 'i' reads bytes of b8 'd' that another piece writes"},
                     {"private (b13)", "private (b12)", "is private to another repeat"},
                     {"parallel private (b13)", "parallel", "a piece of the repeat 'i' writes bytes of b13 'row' that another piece writes"},
                     {"parallel private (b13)", "private (b13)", "b13 'row' is private to the repeat 'i', which is not parallel"},
                     {"count batch", "count batch - 4", "a repeat of -1 iterations"},
                     {"repeat k count 3", "repeat k count 1000000000000", "sound"},
                     {"meet form f5 (b8, b15)", "meet form f5 (b13, b15)", "b13 'row' is private to another repeat"},
                 });
  const std::string no_first = plan_with(plan_sample("step"), "    form f5 (b8 at 4*i, b13) label \"tanh in\"\n", "");
  EXPECT_NE(verdict(no_first, {{"batch", 3}}).find("instruction 6.0 (tanh out): reads byte 0 of b13 'row', which nothing has written"), std::string::npos);
}

/// Updates that stand among the instructions of backward.
TEST(PlanVerify, UpdatesBetweenGradients) {
  expect_refused("updates", {{"batch", 3}},
                 {
                     {"commit 5", "commit 4", "reads byte 0 of b9 'loss', which nothing has written"},
                     {"commit 5", "commit 7", "sound"},
                     {"commit 5", "commit 8", "instruction 7 (update v): writes the state b4 'v' before the commit"},
                     {"form f2 (b4, b11, b1) (16)", "form f2 (b3, b11, b1) (16)", "instruction 9 (dx): reads bytes of b3 'w', which hold the new state already"},
                     {"form f2 (b4, b11, b1) (16)", "form f2 (b2, b11, b1) (16)", "instruction 8 (gather again): reads bytes of b2 'table' without a meeting"},
                     {"form f2 (b2, b13, b1) (4)", "form f2 (b4, b13, b1) (4)", "instruction 12 (update table): reads bytes of b4 'v', which hold the new state already"},
                     {"form f2 (b2, b13, b1) (4)", "form f2 (b2, b3, b1) (4)", "without a meeting"},
                     {"  form f2 (b2, b13, b1) (4)", "  meet form f2 (b2, b3, b1) (4)", "instruction 12 (update table): reads bytes of b3 'w', which hold"},
                 });
  // The weight's update before the product that reads the weight for the gradient of its operand.
  const std::string product = "  meet matmul b8[batch, 4], b4[4, 4] strides [1, 4] -> b10[batch, 4] f32 openblas phase backward label \"dh\"\n";
  const std::string update = "  meet form f2 (b4, b11, b1) (16) phase update label \"update v\"\n";
  const std::string late = plan_with(plan_with(plan_sample("updates"), product, ""), update, update + product);
  EXPECT_NE(verdict(late, {{"batch", 3}}).find("instruction 7 (dh): reads bytes of b4 'v', which hold the new state already"), std::string::npos);
  // In a repeat whose middle iterations are not gone through.
  const auto repeated = [&](const std::string& body) {
    return verdict(plan_with(plan_sample("updates"), update, "  meet repeat i count 24 {\n    " + body + "\n  }\n"), {{"batch", 3}});
  };
  const std::string wide = "form f2 (b2 at i, b11, b1) (1)";
  EXPECT_NE(repeated(wide).find("instruction 8 (gather again): reads bytes of b2 'table' without a meeting"), std::string::npos);
  const std::string met = plan_with(plan_with(plan_sample("updates"), update, "  meet repeat i count 24 {\n    " + wide + "\n  }\n"), "  form f0 (b5, b2, b12)", "  meet form f0 (b5, b2, b12)");
  EXPECT_NE(verdict(met, {{"batch", 3}}).find("instruction 8 (gather again): reads bytes of b2 'table', which hold"), std::string::npos);
  EXPECT_NE(repeated("meet form f2 (b2 at i, b2 at 23 - i, b1) (1)").find("reads bytes of b2 'table'"), std::string::npos);
}

/// What reads or scatters by indices that were held to their range before cannot fail.
TEST(PlanVerify, IndicesThatWereHeld) {
  const std::string refused = "may fail when states have been written already";
  expect_refused("updates", {{"batch", 3}},
                 {
                     {"(b5, b2, b12) (batch, 6)", "(b5, b2, b12) (batch, 5)", refused},
                     {"(b5, b2, b6) (batch, 6)", "(b5, b2, b6) (batch, 5)", "sound"},
                     {"(b5, b2, b12) (batch, 6)", "(b0, b2, b12) (batch, 6)", "instruction 8 (gather again): " + refused},
                     {"  form f0 (b5, b2, b12)", "  meet form f3 (b0, b5) (batch)\n  meet form f0 (b5, b2, b12)", refused},
                     {"  form f0 (b5, b2, b12)", "  meet form f3 (b0, b5) (1)\n  meet form f0 (b5, b2, b12)", refused},
                     {"%0 = load 0 [i0] : i64\n  %1 = load 1 [i1]", "%0 = load 0 [0] : i64\n  %1 = load 1 [i1]", "sound"},
                     {"label \"gather again\"", "label \"gather again\"\n  meet repeat i count 2 {\n    form f0 (b5, b2, b12) (batch, 6) label \"in a repeat\"\n  }",
                      "instruction 9.0 (in a repeat): " + refused},
                 });
  const auto scattered = [](const std::string& scatter) {
    return verdict(plan_with(plan_sample("updates"), "  form f2 (b2, b13, b1) (4)", "  meet scatter add b13[1, batch, 4] index " + scatter + "\n  meet form f2 (b2, b15, b1) (20)"),
                   {{"batch", 3}});
  };
  EXPECT_EQ(scattered("b5[1, batch, 4] strides [0, 1, 0] i64 -> b15[1, 6, 4] f32"), "sound");
  EXPECT_NE(scattered("b5[1, batch, 4] strides [0, 1, 0] i64 -> b15[1, 5, 4] f32").find(refused), std::string::npos);
  EXPECT_NE(scattered("b0[1, batch, 4] strides [0, 1, 0] i64 -> b15[1, 6, 4] f32").find(refused), std::string::npos);
  // Only the first index was held.
  const std::string first = plan_with(plan_sample("updates"), "form f0 (b5, b2, b6) (batch, 6)", "form f0 (b5, b2, b6) (1, 6)");
  EXPECT_NE(verdict(first, {{"batch", 3}}), "sound");
  EXPECT_EQ(verdict(first, {{"batch", 1}}), "sound");
}

TEST(PlanVerify, IndicesOfForms) {
  const auto told = [](const std::string& exprs) {
    const Form form = parse_form("form sizes 1 {\nfactor i0 = s0\noperand 0 read i32\noperand 1 read f32\noperand 2 write f32\n%0 = load 0 [i0] : i32\n%1 = convert %0 : i64\n" +
                                 exprs + "}");
    std::string result;
    for (const IndexUse& use : index_uses(form)) result += std::to_string(use.index) + " below " + use.bound.text() + (use.holds_all ? ", all; " : "; ");
    return result;
  };
  EXPECT_EQ(told("%2 = load 1 [0] index %1 < 9 stride 1 : f32\nstore 2 [i0] = %2\n"), "0 below 9, all; ");
  EXPECT_EQ(told("%2 = constant 1 : f32\n%3 = load 1 [0] index %1 < s0 stride 1 where [i0] < 3 else %2 : f32\nstore 2 [i0] = %3\n"), "0 below s0; ");
  EXPECT_EQ(told("%2 = load 1 [0] index %1 < 9 stride 1 : f32\n%3 = constant 1 : f32\nstore 2 [i0] = %3\n"), "0 below 9; ");
  EXPECT_EQ(told("%2 = neg %1 : i64\n%3 = load 1 [0] index %2 < 9 stride 1 : f32\nstore 2 [i0] = %3\n"), "-1 below 9, all; ");
  EXPECT_EQ(told("%2 = convert %1 : u8\n%3 = convert %2 : i64\n%4 = load 1 [0] index %3 < 9 stride 1 : f32\nstore 2 [i0] = %4\n"), "-1 below 9, all; ");
  EXPECT_EQ(told("%2 = load 1 [i0] : f32\nstore 2 [i0] = %2\n"), "");
}

TEST(PlanVerify, PartsOfBuffers) {
  expect_refused("parts", {{"rows", 5}},
                 {
                     {"(b0, b1, b2) (rows, 6)", "(b0, b1, b2) (rows, 7)", "reads bytes 0 to 112 of b1 'table', which has 96"},
                     {"(b2, b3) (rows)", "(b2, b3) (rows + 1)", "of b2 'gathered', which has 80"},
                     {"where [i0 + i1 + -1] < s0", "where [i0 + i1] < s0", "reads bytes -16 to"},
                     {"store 2 [8*i0 + i1 + 4] = %1", "store 2 [8*i0 + i1 + 3] = %1", "two stores to operand 2 share bytes"},
                     {"store 2 [8*i0 + i1 + 4] = %1", "store 2 [i0 + i1 + 100] = %1", "may write an element twice"},
                     {"  store 2 [8*i0 + i1] = %0\n", "", "reads byte 0 of b4 'both', which nothing has written"},
                     {"[8*rows] \"exp\"", "[8*rows] \"exp\"\n", "sound"},
                     {"(8*rows) label \"exp\"", "(8*rows - 1) label \"exp\"", "reads byte 156 of b5 'exp', which nothing has written"},
                     {"repeat j count 5", "repeat j count 4", "of b10 'stack', which nothing has written"},
                     {"strides [8, 1], b1[4, 4] -> b6", "strides [8, 2], b1[4, 4] -> b6", "neither of the last strides"},
                     {"b10 at 4*j[rows, 4]", "b10 at 5*j[rows, 4]", "writes bytes 80 to 416 of b10 'stack', which has 400"},
                     {"b10 at 4*j[rows, 4]", "b10 at 4*j + 1[rows, 4]", "of b10 'stack', which has"},
                 });
}

TEST(PlanVerify, Calls) {
  expect_refused(
      "calls", {{"batch", 4}},
      {
          {"-> b9[3, 2, 3, 3]", "-> b9[3, 2, 9, 1]", "convolution of [2, 2, 8, 8] and [2, 3, 8, 8] into [3, 2, 9, 1]"},
          {"axes [data, model:(2)2]", "axes [data, pipe]", "mesh 'data=2,model=4' has no axis 'pipe'"},
          {"axes [data, model:(2)2]", "axes [data, model:(3)2]", "a part of 2 does not divide axis 'model' of size 4"},
          {"axes [data, model:(2)2]", "axes [data, data]", "axis 'data' is used twice"},
          {"b9[54] -> b9[54]", "b9[54] -> b9[53]", "collective of [54] into [53]"},
          {"b9[16] -> b10[128]", "b9[16] -> b10[127]", "wanted 128 in dim 0"},
          {"start 16*coord.data size 16", "start 120 size 16", "a piece of 16 from 120"},
          {"b5[local, 4, 4] mask b0[local, 4, 4, 4]", "b5[local, 4, 4] mask b0[local, 4, 4, 3]", "attention with a mask of [2, 4, 4, 3]"},
          {"-> b6[local, 4, 4, 4]", "-> b6[local, 4, 2, 8]", "gradient of attention: found [2, 4, 2, 8] for [2, 4, 4, 4]"},
          {"b12[3] bool)", "b12[3] u8)", "b12 holds bool, wanted u8"},
          {"causal phase", "causal dropout 0.5 steps [0, 64, 16, 4] key b11 phase", "b11 'flags' holds bool, wanted i64"},
          {"causal phase", "causal dropout 0.5 steps [0, 64, 16, 4] key b11[3] phase", "attention with a key of [3]"},
          {"places b14[local, 2, 4, 4]", "places b14[local, 2, 4, 5]", "pool of [2, 2, 8, 8] into [2, 2, 4, 4]"},
          {"size [3, 3] stride [2, 2]", "size [3, 3] stride [2, 3]", "pool of [2, 2, 8, 8] into [2, 2, 4, 4]"},
          {"places b14[local, 2, 4, 4] u8", "places b14[local, 2, 4, 4] i32", "b14 'places' holds u8, wanted i32"},
          {"max b0[local, 2, 8, 8] -> b13", "max b0 at 1[local, 2, 8, 8] -> b13", "reads bytes 4 to 1028 of b0 'x', which has 1024"},
          {"-> b13[local, 2, 4, 4]", "-> b13 at 2[local, 2, 4, 4]", "writes bytes 8 to 264 of b13 'pooled', which has 256"},
          {"b15[1, 9, 4*local] f32 base", "b15 at 1[1, 9, 4*local] f32 base", "writes bytes 4 to 292 of b15 'scattered', which has 288"},
          {"f32 base b16[1, 9, 4*local]", "f32 base b15[1, 9, 4*local] strides [0, 4*local, 1]", "writes bytes of b15 'scattered' that it also reads"},
          {"f32 base b16[1, 9, 4*local]", "f32 base b15[1, 9, 4*local]", "sound"},
          {"b15[1, 9, 4*local] f32 base b16[1, 9, 4*local]", "b16[1, 9, 4*local] f32 base b16[1, 9, 4*local]", "sound"},
          {"scatter max b13[1, 8,", "scatter max b13[1, 7,", "scatter of [1, 7, 8] by [1, 8, 8] into [1, 9, 8]"},
          {"scatter add b13", "scatter add b16", "of b16 'scanned', which nothing has written"},
          {"scan sum b15[", "scan sum b15 at 1[", "reads bytes 4 to 292 of b15 'scattered', which has 288"},
          {"meet one_thread form f0 (b1 at 53)", "meet one_thread form f0 (b1 at 54)", "writes bytes 216 to 220 of b1"},
          {"meet all_reduce sum f32 b9[54]",
           "meet repeat i count 1 + coord.data {\n meet all_reduce sum f32 b9[54] -> b9[54] dim 0 start 0 size 0 axes [data]\n }\n meet all_reduce sum f32 "
           "b9[54]",
           "whose count is another on each rank"},
          {"meet all_reduce sum f32 b9[54]",
           "meet repeat i count 2 parallel {\n meet all_reduce sum f32 b9[54] -> b9[54] dim 0 start 0 size 0 axes [data]\n }\n meet all_reduce sum f32 b9[54]",
           "a collective in the parallel repeat 'i'"},
      });
}

TEST(PlanVerify, LongRepeatsFollowFromTheirEnds) {
  const std::string head = plan_sample("step").substr(0, plan_sample("step").find("entry step"));
  const auto plan = [&](const std::string& body) {
    return head +
           "entry e arena 4194304 commit 3 {\n  buffer b0 = input 0 f32[40000] \"x\"\n  buffer b1 = arena at 0 bytes 160000 f32[40000]\n"
           "  buffer b2 = arena at 160000 bytes 64 f32[4]\n  input batch \"x\" f32 b0[40000]\n  output user_output \"y\" f32 b1[40000]\n" +
           body + "}\n";
  };
  const std::string nothing = "  meet form f5 (b0, b2)\n  meet form f5 (b0, b2)\n";
  EXPECT_EQ(verdict(plan("  meet repeat i count 10000 {\n    meet form f5 (b0 at 4*i, b1 at 4*i)\n  }\n" + nothing), {{"batch", 1}}), "sound");
  EXPECT_EQ(verdict(plan("  meet repeat i count 10000 parallel {\n    meet form f5 (b0 at 4*i, b1 at 4*i)\n  }\n" + nothing), {{"batch", 1}}), "sound");
  EXPECT_EQ(verdict(plan("  meet repeat i count 10000 reverse parallel {\n    meet form f5 (b0 at 4*i, b1 at 4*i)\n  }\n" + nothing), {{"batch", 1}}), "sound");
  EXPECT_EQ(verdict(plan("  meet repeat i count 10000 {\n    meet form f5 (b0 at 4*i, b1 at 4*floordiv(2*i, 2))\n  }\n" + nothing), {{"batch", 1}}), "sound");
  EXPECT_NE(verdict(plan("  meet repeat i count 9999 {\n    meet form f5 (b0 at 4*i, b1 at 4*i)\n  }\n" + nothing), {{"batch", 1}}).find("reads byte 159984"),
            std::string::npos);
  EXPECT_NE(verdict(plan("  meet repeat i count 10000 {\n    meet form f5 (b0 at 4*i, b1 at 8*floordiv(i, 2))\n  }\n" + nothing), {{"batch", 1}})
                .find("reads byte 16 "),
            std::string::npos);
  // A scan reads what the iteration before wrote; as pieces they may not.
  const std::string scan = "  meet form f5 (b0, b1)\n  meet repeat i count 9999 {\n    meet form f5 (b1 at 4*i, b1 at 4*i + 4)\n  }\n  meet form f5 (b0, b2)\n";
  EXPECT_EQ(verdict(plan(scan), {{"batch", 1}}), "sound");
  EXPECT_NE(verdict(plan(plan_with(scan, "count 9999", "count 9999 parallel")), {{"batch", 1}}).find("a piece of the repeat 'i'"), std::string::npos);
  EXPECT_NE(verdict(plan(plan_with(scan, "    meet form", "    form")), {{"batch", 1}}).find("without a meeting"), std::string::npos);
}

TEST(PlanVerify, AddressesOfForms) {
  const auto reach = [](const std::string& factors, const std::string& at, int64_t size) {
    const Form form = parse_form("form sizes 1 {\n" + factors + "operand 0 read f32\n%0 = constant 0 : f32\n%1 = load 0 " + at + " : f32\n}");
    const std::vector<FormAccess> accesses = form_accesses(form, std::vector<int64_t>{size});
    if (accesses.empty()) return std::string("nothing");
    const ByteRegion& region = accesses[0].region;
    std::string result = std::to_string(region.begin) + " to " + std::to_string(region.end()) + ", runs of " + std::to_string(region.run);
    return accesses[0].is_exact ? result : result + ", at most";
  };
  const std::string two = "factor i0 = s0\nfactor i1 = 4\n", cut = "factor i0 = floordiv(s0 + 7, 8)\nfactor i1 = 8 block_of i0 total s0\n";
  EXPECT_EQ(reach(two, "[4*i0 + i1]", 5), "0 to 80, runs of 80");
  EXPECT_EQ(reach(two, "[i0 + 5*i1]", 5), "0 to 80, runs of 80");
  EXPECT_EQ(reach(two, "[8*i0 + i1 + 2]", 5), "8 to 152, runs of 16");
  EXPECT_EQ(reach(two, "[-4*i0 + i1 + 16]", 5), "0 to 80, runs of 80");
  EXPECT_EQ(reach(two, "[4*i0 + i1]", 0), "nothing");
  EXPECT_EQ(reach(two, "[i0 + i1 + -1] where [i0 + i1 + -1] < s0 else %0", 5), "0 to 20, runs of 20");
  EXPECT_EQ(reach(two, "[3*i0 + 3*i1 + -3] where [i0 + i1 + -1] < s0 else %0", 5), "0 to 52, runs of 4");
  EXPECT_EQ(reach(two, "[i0 + -2] where [i0 + -2] < 2 else %0", 9), "0 to 8, runs of 8");
  EXPECT_EQ(reach(two, "[-1*i0 + 3] where [-1*i0 + 3] < 9 else %0", 9), "0 to 16, runs of 16");
  EXPECT_EQ(reach(two, "[i0] where [i0 + 9] < 3 else %0", 9), "nothing");
  EXPECT_EQ(reach(cut, "[8*i0 + i1]", 21), "0 to 84, runs of 84");
  EXPECT_EQ(reach(cut, "[8*i0 + i1]", 24), "0 to 96, runs of 96");
  EXPECT_EQ(reach(cut, "[i1]", 5), "0 to 20, runs of 20");
  EXPECT_EQ(reach(cut, "[16*i0 + i1]", 21), "0 to 160, runs of 32, at most");
}

/// Thousands of instructions, and an optimizer of hundreds of launches.
TEST(PlanVerify, TakesTimeThatGrowsWithThePlan) {
  StepPlan plan = parse_plan(plan_sample("step"));
  PlanEntry& entry = plan.entries[0];
  const std::vector<Instruction> body(entry.instructions.begin(), entry.instructions.begin() + entry.commit_begin);
  for (int i = 0; i < 400; ++i) entry.instructions.insert(entry.instructions.begin(), body.begin(), body.end());
  entry.commit_begin += static_cast<int>(400 * body.size());
  auto& update = std::get<FormCall>(entry.instructions[static_cast<size_t>(entry.commit_begin)].op);
  update.launches.clear();
  for (int i = 0; i < 500; ++i) {
    plan.states.push_back({"s" + std::to_string(i), RoleKind::Parameter, DType::F32, {4}});
    entry.new_states.push_back(plan.states.back().name);
    entry.buffers.push_back(
        {.space = Space::State, .index = static_cast<int>(plan.states.size()) - 1, .elements = 4, .dtype = DType::F32, .offset = 0, .bytes = 0, .label = ""});
    const int buffer = static_cast<int>(entry.buffers.size()) - 1;
    update.launches.push_back({{{buffer, 0, {}, {}}, {12, 0, {}, {}}, {2, 0, {}, {}}}, {4}});
  }
  entry.new_states.erase(entry.new_states.begin(), entry.new_states.begin() + 2);  // w and b
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NO_THROW(verify(plan, {{"batch", 3}}));
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5);
  RecordProperty("instructions", static_cast<int>(entry.instructions.size()));
}

}  // namespace plan_verify_test
}  // namespace stepgraph
