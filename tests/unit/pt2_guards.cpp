// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/guards.h"

namespace stepgraph {
namespace pt2_guards_test {

std::string checked(const std::string& guard, int64_t rows, int64_t columns) {
  try {
    const SizeGuards guards({guard}, {"x", "x_a_0", "y"});
    guards.check([&](std::string_view input, int64_t dim) -> std::optional<int64_t> {
      if ((input != "x" && input != "x_a_0") || dim < 0 || dim > 1) return std::nullopt;
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

TEST(SizeGuards, PythonsRealNumbers) {
  for (const char* guard : {"math.trunc(0.5*torch.sym_float(L['x'].size()[0])) == 3", "math.trunc(-0.5*torch.sym_float(7)) == -3", "math.floor(-3.5) == -4",
                            "math.ceil(L['x'].size()[0] / 2) == 4", "(L['x'].size()[0] / 3) > 2.25", "1e3 >= 999.5", "round(2.5) == 2",
                            "math.trunc(torch.sym_float(L['x'].size()[1] - 3) ** 0.5) == 3", "2**-1 == 0.5", "float(7) // 2 == 3.0",
                            "torch.sym_max(2.5, L['x'].size()[0]) == 7", "abs(-7) == L['x'].size()[0]", "True", "math.sqrt(L['x'].size()[1] + 4) == 4"})
    EXPECT_EQ(checked(guard, 7, 12), "holds") << guard;
  EXPECT_EQ(checked("math.trunc(0.5*torch.sym_float(L['x'].size()[0])) == 4", 7, 12),
            "the exported program assumes math.trunc(0.5*torch.sym_float(L['x'].size()[0])) == 4, but x dim 0 is 7; take other sizes, or export the model with "
            "these");
}

TEST(SizeGuards, NestedArgumentsAndDenseArrays) {
  EXPECT_EQ(checked("L['x']['a'][0].size()[1] == 12 and L['X'].size()[0] == 7", 7, 12), "holds");
  EXPECT_NE(checked("L['x']['a'][0].size()[1] == 13", 7, 12).find("but x_a_0 dim 1 is 12"), std::string::npos);
  EXPECT_EQ(checked("L['x'].stride()[0] == L['x'].size()[1] and L['x'].stride()[1] == 1 and L['x'].storage_offset() == 0", 7, 12), "holds");
  EXPECT_NE(checked("L['x'].stride()[0] == 1", 7, 12).find("but x dim 0 is 7, x dim 1 is 12"), std::string::npos);
}

std::string facts_of(const std::vector<std::string>& guards) {
  std::string found;
  for (const SizeFact& fact : SizeGuards(guards, {"x"}).facts([](std::string_view, int64_t dim) -> std::optional<Dim> {
         if (dim == 2) return Dim(6);
         return Dim::symbol(dim == 0 ? "rows" : "columns");
       }))
    found += (found.empty() ? "" : ", ") + fact.symbol + (fact.only ? " = " + std::to_string(*fact.only) : " by " + std::to_string(fact.multiple_of));
  return found;
}

TEST(SizeGuards, FactsOfOneSize) {
  EXPECT_EQ(facts_of({"(3*L['x'].size()[0]) == (6*(L['x'].size()[0] // 2))"}), "rows by 2");
  EXPECT_EQ(facts_of({"(L['x'].size()[0] // 2) == (L['x'].size()[0] + (-1)*(L['x'].size()[0] // 2))"}), "rows by 2");
  EXPECT_EQ(facts_of({"((3*L['x'].size()[0]) % 2) == 0 and (L['x'].size()[1] % 6) <= 0"}), "rows by 2, columns by 6");
  EXPECT_EQ(facts_of({"((10*L['x'].size()[0]) % 4) == 0", "L['x'].size()[0] % 9 == 3"}), "rows by 2, rows by 3");
  EXPECT_EQ(facts_of({"L['x'].size()[0] + 5 == 10", "2*L['x'].size()[1] == L['x'].size()[2]"}), "rows = 5, columns = 3");
  EXPECT_EQ(facts_of({"L['x'].size()[0] > 3", "L['x'].size()[0] % 2 == 1", "L['x'].size()[0] == L['x'].size()[1]",
                      "(L['x'].size()[0] // (L['x'].size()[0] // 2)) == 2", "L['x'].size()[0] % 2 == 0 or True"}),
            "");
}

TEST(SizeGuards, AFailureNamesGuardAndSizes) {
  EXPECT_EQ(checked("L['x'].size()[0] % 2 == 0 and L['x'].size()[1] > 3", 7, 12),
            "the exported program assumes L['x'].size()[0] % 2 == 0 and L['x'].size()[1] > 3, but x dim 0 is 7; take other sizes, or export the model with these");
  EXPECT_EQ(checked("3 < L['x'].size()[0] < 5", 7, 12), "the exported program assumes 3 < L['x'].size()[0] < 5, but x dim 0 is 7; take other sizes, or export the model with these");
}

TEST(SizeGuards, SizesThatPyTorchTreatsApartAreTaken) {
  EXPECT_EQ(checked("L['x'].size()[0] != 1", 1, 12), "holds");
  EXPECT_EQ(checked("L['x'].size()[1] != 12", 1, 12).substr(0, 28), "the exported program assumes");
  for (const char* guard : {"(L['x'].size()[0] - L['x'].size()[0]//2) != 1", "2*(L['x'].size()[0]//4) >= 2", "1 < L['x'].size()[0] // 2"})
    EXPECT_EQ(checked(guard, 2, 12), "holds") << guard;
  for (const char* guard : {"(L['x'].size()[0] - L['x'].size()[0]//2) == 2", "(L['x'].size()[0]//2) >= 3", "(L['x'].size()[0]//2) < 1"})
    EXPECT_NE(checked(guard, 2, 12), "holds") << guard;
}

TEST(SizeGuards, WhatIsNotUnderstoodIsQuoted) {
  EXPECT_EQ(checked("cos(L['x'].size()[0]) == 1", 7, 12),
            "the exported program assumes cos(L['x'].size()[0]) == 1, which is not understood here; make its sizes follow from the inputs' by + - * // %, or "
            "fix them (no dynamic_shapes)");
  for (const char* guard :
       {"", "L['z'].size()[0] == 1", "L['x']['y'].size()[0] == 1", "L['x'].size()[0] ==", "1 +", "x == 1", "L['x'].size()[0] == 7)", "import os", "orange",
        "99999999999999999999 == 1", "1.5.2 < 2", "L['x'].size()[0.5] == 1", "math.trunc() == 1", "L['x'][].size()[0] == 1"})
    EXPECT_NE(checked(guard, 7, 12).find("which is not understood here"), std::string::npos) << guard;
  for (const std::string& guard : {std::string(100'000, '('), std::string(9'000, '('), std::string(9'000, '-') + "1 == 1"})
    EXPECT_NE(checked(guard, 7, 12).find("which is not understood here"), std::string::npos);
}

TEST(SizeGuards, WhatHasNoValueIsLeftOut) {
  for (const char* guard : {"1 // 0 == 1", "9223372036854775807 + 1 == 0", "2**200 == 0", "L['y'].size()[0] == 3", "L['x'].size()[5] == 3", "1.0 / 0 == 1",
                            "math.trunc(1e300) == 1"})
    EXPECT_EQ(checked(guard, 7, 12), "holds") << guard;
}

}  // namespace pt2_guards_test
}  // namespace stepgraph
