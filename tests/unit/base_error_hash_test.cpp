// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"

namespace stepgraph {
namespace base_error_hash_test {

TEST(ErrorTest, PlacesAreBaseNames) {
  EXPECT_EQ((SourcePlace{"/home/me/gpt.cpp", 41}).text(), "gpt.cpp:41");
  EXPECT_EQ(SourcePlace{}.text(), "");
  EXPECT_STREQ(UserError("inner dims differ", {"a/b.cpp", 3}).what(), "inner dims differ (b.cpp:3)");
  EXPECT_STREQ(UserError("inner dims differ", SourcePlace{}).what(), "inner dims differ");
  const SourcePlace here = place_of(std::source_location::current());
  EXPECT_EQ(here.text().substr(0, 24), "base_error_hash_test.cpp");
}

TEST(ErrorTest, ChecksNameTheExpression) {
  const int two = 2;
  EXPECT_NO_THROW(SG_CHECK(two == 2));
  try {
    SG_CHECK(two == 3, "two is " + std::to_string(two));
    FAIL();
  } catch (const InternalError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.substr(0, what.find(" (")), "internal error: check failed: two == 3: two is 2");
    EXPECT_NE(what.find("(base_error_hash_test.cpp:"), std::string::npos);
  }
}

TEST(ErrorTest, CommErrorsNameSuspects) {
  const CommError error("all_reduce: rank 1 is lost", "data", {1});
  EXPECT_EQ(error.group(), "data");
  EXPECT_EQ(error.suspects(), std::vector<int>{1});
}

TEST(HashTest, KnownValueIsStable) {
  // XXH3-128 of nothing, as its specification prints it.
  EXPECT_EQ(hash_bytes({}).text(), "99aa06d3014798d86001c324468d497f");
}

TEST(HashTest, BoundariesCount) {
  EXPECT_NE(Hasher().text("ab").text("c").finish(), Hasher().text("a").text("bc").finish());
  EXPECT_NE(Hasher().text("").finish(), Hasher().finish());
  EXPECT_NE(Hasher().number(1).number(2).finish(), Hasher().number(2).number(1).finish());
  EXPECT_NE(Hasher().real(0.0).finish(), Hasher().real(-0.0).finish());
  EXPECT_EQ(Hasher().real(NAN).finish(), Hasher().real(NAN).finish());
  const Hash128 inner = Hasher().text("x").finish();
  EXPECT_EQ(Hasher().hash(inner).finish(), Hasher().hash(inner).finish());
  EXPECT_EQ(Hasher().text("abc").finish(), Hasher().bytes(std::as_bytes(std::span("abc", 3))).finish());
}

TEST(HashTest, FinishDoesNotEndTheStream) {
  Hasher hasher;
  hasher.number(1);
  const Hash128 first = hasher.finish();
  EXPECT_EQ(hasher.finish(), first);
  EXPECT_EQ(hasher.number(2).finish(), Hasher().number(1).number(2).finish());
}

}  // namespace base_error_hash_test
}  // namespace stepgraph
