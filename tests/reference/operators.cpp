// SPDX-License-Identifier: Apache-2.0
// PyTorch's rarer operators as recorded by scripts/record_operators.py: loss, gradients, and parameters after a step.
#include <gtest/gtest.h>

#include "stepgraph/train/check.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace operators_test {

class Operators : public ::testing::TestWithParam<std::string> {};

TEST_P(Operators, Agree) {
  const CheckReport report = check_folder(std::string(testing::source_root()) + "/tests/samples/operators/" + GetParam(), {"model.pt2", "", {}});
  EXPECT_TRUE(report.ok()) << text(report, 12);
  EXPECT_GE(report.rows.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(All, Operators,
                         ::testing::Values("algebra", "bounds", "halves", "losses", "math", "order", "second", "spatial", "special", "zero_gradients"));

}  // namespace operators_test
}  // namespace stepgraph
