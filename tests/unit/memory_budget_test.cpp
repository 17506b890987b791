// SPDX-License-Identifier: Apache-2.0
// Budgets as texts.
#include <gtest/gtest.h>

#include "stepgraph/backend/memory_budget.h"
#include "stepgraph/base/error.h"

namespace stepgraph {
namespace memory_budget_test {

using Kind = MemoryBudget::Kind;

TEST(MemoryBudget, IsReadFromAText) {
  EXPECT_EQ(parse_memory_budget("512MiB"), (MemoryBudget{Kind::Bytes, int64_t{512} << 20, 1}));
  EXPECT_EQ(parse_memory_budget("1.5GB"), (MemoryBudget{Kind::Bytes, 1'500'000'000, 1}));
  EXPECT_EQ(parse_memory_budget("100B"), (MemoryBudget{Kind::Bytes, 100, 1}));
  EXPECT_EQ(parse_memory_budget("62.5%"), (MemoryBudget{Kind::Share, 0, 0.625}));
  EXPECT_EQ(parse_memory_budget("min").kind, Kind::Smallest);
  EXPECT_EQ(parse_memory_budget("none"), MemoryBudget{});
}

TEST(MemoryBudget, AnotherTextIsRefused) {
  for (const char* text : {"", "512", "MiB", "-1MiB", "12 MiB", "12mib", "1e300GB", "nan%", "50%%"}) {
    try {
      parse_memory_budget(text);
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("a memory budget: found '") + text + "', wanted bytes with a unit"), std::string::npos) << error.what();
    }
  }
}

}  // namespace memory_budget_test
}  // namespace stepgraph
