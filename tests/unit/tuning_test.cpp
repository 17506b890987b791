// SPDX-License-Identifier: Apache-2.0
// Records of tuning: their text reads back, a plan gets what they say, and what was measured is what a plan has.
#include <gtest/gtest.h>

#include "stepgraph/backend/tune_products.h"
#include "stepgraph/program/plan_text.h"
#include "stepgraph/program/tuning.h"
#include "stepgraph/run/device/gemm.h"

namespace stepgraph {
namespace tuning_test {

/// Two products of f32, one small, one with a transposed result, and one of f64.
const std::string plan_text =
    "stepgraph_plan 1\n"
    "target avx2 threads 2 l1 32768 l2 524288 granularity 64\n"
    "symbol batch in [1, 96]\n"
    "entry main arena 0 commit 4 {\n"
    "  buffer b0 = input 0 f32[256*batch] \"x\"\n"
    "  meet matmul b0[batch, 256], b0[256, 192] strides [1, 256] -> b0[batch, 192] f32 openblas\n"
    "  meet one_thread matmul b0[8, 4], b0[4, 8] -> b0[8, 8] f32 openblas\n"
    "  meet matmul b0[256, batch] strides [1, 256], b0[batch, 192] -> b0[256, 192] strides [1, 256] f32 openblas\n"
    "  repeat k count 2 {\n"
    "    meet matmul b0[16, 16], b0[16, 16] -> b0[16, 16] f64 onednn\n"
    "  }\n"
    "}\n";

const MatMulCall& product(const StepPlan& plan, size_t i) {
  const Instruction& instruction = plan.entries[0].instructions[i];
  const auto* repeat = std::get_if<Repeat>(&instruction.op);
  return std::get<MatMulCall>(repeat != nullptr ? repeat->body[0].op : instruction.op);
}

TEST(Tuning, TheTextReadsBack) {
  Tuning tuning;
  tuning.measured_with = "onednn 2.6.3, openblas \"0.3.21\"";
  tuning.matmuls[{.m = 256, .n = 512, .k = 128, .transpose_b = true, .threads = 2}] = {GemmLibrary::OpenBlas, GemmCut{false, 4}};
  tuning.matmuls[{.m = 256, .n = 512, .k = 128, .transpose_a = true, .threads = 2}] = {GemmLibrary::OneDnn, {}};
  tuning.matmuls[{.dtype = DType::F64, .batch = 3, .m = 1, .n = 2, .k = 3, .accumulate = true, .isa = InstructionSet::Avx512, .threads = 1}] = {
      GemmLibrary::OneDnn, GemmCut{true, 1}};
  const std::string printed = text(tuning);
  EXPECT_EQ(parse_tuning(printed), tuning) << printed;
  EXPECT_EQ(text(parse_tuning(printed)), printed);
  EXPECT_EQ(parse_tuning(text(Tuning{})), Tuning{});
}

TEST(Tuning, APlanGetsWhatTheRecordSaysAndElseWhatTheRuleSays) {
  StepPlan plan = parse_plan(plan_text);
  choose_products(plan, {});
  EXPECT_EQ(product(plan, 0).library, GemmLibrary::OneDnn);
  EXPECT_EQ(product(plan, 1).library, GemmLibrary::OneDnn);
  // C^T = B^T A: A of that lies by columns.
  EXPECT_EQ(product(plan, 2).library, GemmLibrary::OpenBlas);
  EXPECT_EQ(product(plan, 3).library, GemmLibrary::OpenBlas) << "products of f64 are OpenBLAS's";
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(product(plan, i).cut);

  const std::map<MatMulProblem, int64_t> products = products_of(plan);
  EXPECT_EQ(products.size(), 4U);
  const MatMulProblem forward{.m = 96, .n = 192, .k = 256, .transpose_b = true, .threads = 2};
  const MatMulProblem exchanged{.m = 192, .n = 256, .k = 96, .transpose_a = true, .threads = 2};
  EXPECT_TRUE(products.contains(forward));
  EXPECT_TRUE(products.contains(exchanged));
  EXPECT_TRUE(products.contains({.m = 8, .n = 8, .k = 4, .threads = 1})) << "one thread runs it alone";

  Tuning tuning;
  tuning.matmuls[forward] = {GemmLibrary::OpenBlas, GemmCut{true, 3}};
  MatMulProblem other_threads = exchanged;
  other_threads.threads = 3;
  tuning.matmuls[other_threads] = {GemmLibrary::OneDnn, GemmCut{false, 2}};
  choose_products(plan, tuning);
  EXPECT_EQ(product(plan, 0).library, GemmLibrary::OpenBlas);
  EXPECT_EQ(product(plan, 0).cut, (GemmCut{true, 3}));
  EXPECT_EQ(product(plan, 2).library, GemmLibrary::OpenBlas) << "a record for other threads is of no use";
  const std::string printed = text(plan);
  EXPECT_NE(printed.find("f32 openblas rows 3"), std::string::npos) << printed;
  EXPECT_EQ(text(parse_plan(printed)), printed);
}

TEST(Tuning, WhatHasNoRecordIsMeasured) {
  if (!has_libraries()) GTEST_SKIP() << "a build without libraries";
  const StepPlan plan = parse_plan(plan_text);
  Tuning tuning;
  const MatMulProblem known{.m = 8, .n = 8, .k = 4, .threads = 1};
  tuning.matmuls[known] = {GemmLibrary::OpenBlas, GemmCut{true, 7}};
  ASSERT_TRUE(tune_products(plan, tuning, 30));
  EXPECT_EQ(tuning.matmuls.size(), 3U) << "of f64 there is nothing to choose";
  EXPECT_EQ(tuning.matmuls[known].cut, (GemmCut{true, 7}));
  EXPECT_NE(tuning.measured_with.find("onednn "), std::string::npos);
  EXPECT_NE(tuning.measured_with.find("openblas "), std::string::npos);
  EXPECT_FALSE(tune_products(plan, tuning, 30)) << "all have one now";
  Tuning none;
  EXPECT_FALSE(tune_products(plan, none, 0));
  EXPECT_TRUE(none.matmuls.empty());
}

}  // namespace tuning_test
}  // namespace stepgraph
