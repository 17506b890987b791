// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/guards.h"

namespace stepgraph {
namespace pt2_guards_test {

std::string checked(const std::string& guard, int64_t rows, int64_t columns) {
  const SizeGuards guards({guard});
  if (guards.count() == 0) return "unknown";
  try {
    guards.check([&](std::string_view input, int64_t dim) -> std::optional<int64_t> {
      if (input != "x" || dim < 0 || dim > 1) return std::nullopt;
      return dim == 0 ? rows : columns;
    });
  } catch (const UserError& error) {
    return error.what();
  }
  return "holds";
}

TEST(SizeGuards, PythonsArithmetic) {
  for (const char* guard : {"L['x'].size()[0] == 7", "L['x'].size()[1] == 2 + 2*((L['x'].size()[1] - 1)//2)", "((-1 + L['x'].size()[0]) % 2) != 1", "-7//2 == -4", "-7 % 4 == 1", "7 % -4 == -1",
                            "2 <= L['x'].size()[0] <= 9", "not L['x'].size()[0] < 3", "L['x'].size()[0] > 100 or L['x'].size()[1]**2 == 144", "max(1, L['x'].size()[0], 3) == 7", "-2**2 == -4",
                            "(12*L[\"x\"].size()[0]) == (7*L['x'].size()[1])"})
    EXPECT_EQ(checked(guard, 7, 12), "holds") << guard;
}

TEST(SizeGuards, AFailureNamesGuardAndSizes) {
  EXPECT_EQ(checked("L['x'].size()[0] % 2 == 0 and L['x'].size()[1] > 3", 7, 12),
            "the exported program assumes L['x'].size()[0] % 2 == 0 and L['x'].size()[1] > 3, but x dim 0 is 7; take other sizes, or export the model with these");
  EXPECT_EQ(checked("3 < L['x'].size()[0] < 5", 7, 12), "the exported program assumes 3 < L['x'].size()[0] < 5, but x dim 0 is 7; take other sizes, or export the model with these");
}

TEST(SizeGuards, SizesThatPyTorchTreatsApartAreTaken) {
  EXPECT_EQ(checked("L['x'].size()[0] != 1", 1, 12), "holds");
  EXPECT_EQ(checked("L['x'].size()[1] != 12", 1, 12).substr(0, 28), "the exported program assumes");
}

TEST(SizeGuards, WhatHasNoValueOrNoMeaningIsLeftOut) {
  for (const char* guard : {"", "L['x'].stride()[0] == 1", "L['x']['y'].size()[0] == 1", "L['x'].size()[0] ==", "1 +", "x == 1", "1.5 < 2", "L['x'].size()[0] == 7)", "import os", "orange", "99999999999999999999 == 1"})
    EXPECT_EQ(checked(guard, 7, 12), "unknown") << guard;
  for (const char* guard : {"1 // 0 == 1", "9223372036854775807 + 1 == 0", "2**200 == 0", "L['y'].size()[0] == 3", "L['x'].size()[5] == 3"}) EXPECT_EQ(checked(guard, 7, 12), "holds") << guard;
  EXPECT_EQ(checked(std::string(100'000, '('), 7, 12), "unknown");
  EXPECT_EQ(checked(std::string(9'000, '('), 7, 12), "unknown");
  EXPECT_EQ(checked(std::string(9'000, '-') + "1 == 1", 7, 12), "unknown");
}

}  // namespace pt2_guards_test
}  // namespace stepgraph
