// SPDX-License-Identifier: Apache-2.0
// PyTorch's rarer operators as recorded by scripts/record_operators.py: loss, gradients, and parameters after a step.
#include <gtest/gtest.h>

#include "stepgraph/train/check.h"

namespace stepgraph {
namespace {

class Operators : public ::testing::TestWithParam<std::string> {};

TEST_P(Operators, Agree) {
  const CheckReport report = check_folder(std::string(STEPGRAPH_SOURCE_DIR) + "/tests/samples/operators/" + GetParam(), {"model.pt2", "", {}});
  EXPECT_TRUE(report.ok()) << text(report, 12);
  EXPECT_GE(report.rows.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(All, Operators, ::testing::Values("algebra", "losses", "math", "order", "spatial", "zero_gradients"));

}  // namespace
}  // namespace stepgraph
