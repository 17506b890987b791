// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/base/printable.h"

namespace stepgraph {
namespace base_error_hash_test {

TEST(ErrorTest, PlacesAreBaseNames) {
  EXPECT_EQ((SourcePlace{"/home/me/gpt.cpp", 41}).text(), "gpt.cpp:41");
  EXPECT_EQ(SourcePlace{}.text(), "");
  EXPECT_STREQ(UserError("inner dims differ", SourcePlace{"a/b.cpp", 3}).what(), "inner dims differ (b.cpp:3)");
  EXPECT_STREQ(UserError("inner dims differ", SourcePlace{}).what(), "inner dims differ");
  const SourcePlace here = place_of(std::source_location::current());
  EXPECT_EQ(here.text().substr(0, 24), "base_error_hash_test.cpp");
}

TEST(ErrorTest, WhatItCarriesStaysWhenItIsRetold) {
  const UserError plain("a"), index("gather: index 9", BadIndex{"gather", 9, 4});
  EXPECT_EQ(plain.bad_index(), nullptr);
  EXPECT_EQ(plain.retold("b").bad_index(), nullptr);
  const UserError twice = index.retold("in layer: gather: index 9", {"m.py", 3}).retold("again");
  EXPECT_STREQ(twice.what(), "again");
  ASSERT_NE(twice.bad_index(), nullptr);
  EXPECT_EQ(twice.bad_index()->op, "gather");
  EXPECT_EQ(twice.bad_index()->index, 9);
  EXPECT_EQ(twice.bad_index()->size, 4);
}

TEST(Printable, EscapesWhatIsNoText) {
  EXPECT_EQ(printable("plain, gr\xc3\xbc\xc3\x9f, \xe2\x82\xac, \xf0\x9f\x98\x80"), "plain, gr\xc3\xbc\xc3\x9f, \xe2\x82\xac, \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("a\x1b[1m\x7f\n\t"), "a\\x1b[1m\\x7f\\x0a\\x09");
  EXPECT_EQ(printable("a\n\tb\r", true), "a\n\tb\\x0d");
  // Cut, longer than needed, surrogates, beyond the last character.
  for (const std::string bad : {"\xff", "\xc3", "\xe2\x82", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "\x80"}) {
    EXPECT_FALSE(is_utf8("a" + bad)) << printable(bad);
    EXPECT_TRUE(is_utf8(printable("a" + bad + "b")));
    EXPECT_EQ(printable(bad + "b").substr(0, 2), "\\x");
  }
  EXPECT_TRUE(is_utf8(""));
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
