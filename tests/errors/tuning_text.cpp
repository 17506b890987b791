// SPDX-License-Identifier: Apache-2.0
// Faults in records of tuning, and where they are found.
#include <gtest/gtest.h>

#include "stepgraph/program/tuning.h"
#include "tests/support/error_of.h"

namespace stepgraph {
namespace tuning_text_test {

TEST(TuningTextErrors, SayWhatAndWhere) {
  const std::string head = "stepgraph_tuning 1\nmeasured_with \"\"\n", product = "matmul f32 batch 1 m 2 n 3 k 4 avx2 threads 2 -> onednn";
  const struct {
    std::string text, message;
  } cases[] = {
      {"", "a.txt:1:1: found the end, wanted 'stepgraph_tuning'"},
      {"stepgraph_tuning 2\n", "a.txt:1:18: found format version 2, wanted 1"},
      {"stepgraph_tuning 1\n", "a.txt:2:1: found the end, wanted 'measured_with'"},
      {head + "gemm", "a.txt:3:1: found 'gemm', wanted 'matmul' or the end"},
      {head + "matmul bf16 batch 1", "a.txt:3:8: found a product of bf16, wanted f32 or f64"},
      {head + "matmul f32 batch -1", "a.txt:3:18: found -1, wanted at least 0"},
      {head + "matmul f32 batch 1 m 1 n 1 k 1 avx2 threads 0", "a.txt:3:45: found 0, wanted at least 1"},
      {head + "matmul f32 batch 1 m 1 n 1 k 1 sse threads 1", "a.txt:3:32: found 'sse', wanted avx2 or avx512"},
      {head + "matmul f32 batch 1 m 1 n 1 k 1 avx2 threads 1 -> mkl", "a.txt:3:50: found 'mkl', wanted onednn or openblas"},
      {head + product + " rows 0", "a.txt:3:62: found 0 pieces, wanted at least 1"},
      {head + product + " columns 9999999", "a.txt:3:65: found 9999999 pieces, wanted at most 1048576"},
      {head + product + "\n" + product + " rows 2", "a.txt:4:1: a product that has a choice already"},
  };
  for (const auto& one : cases) EXPECT_EQ(testing::error_of([&] { parse_tuning(one.text, "a.txt"); }), one.message) << one.text;
}

}  // namespace tuning_text_test
}  // namespace stepgraph
