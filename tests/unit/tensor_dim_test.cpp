// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/tensor/dim.h"
#include "tests/support/effort.h"

namespace stepgraph {
namespace tensor_dim_test {

Dim sym(const char* name) { return Dim::symbol(name); }

int64_t floor_of(int64_t a, int64_t b) { return static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b))); }

const std::array<std::string, 3> names = {"a", "b", "n.x"};

/// A random expression together with its value under one assignment, computed beside it and not by Dim. Nothing where it divides by zero.
struct Sample {
  Dim dim;
  std::optional<int64_t> value;
};

class Generator {
 public:
  Generator(uint64_t seed, SymbolValues values) : random_(seed), values_(std::move(values)) {}

  Sample make(int depth) {
    const int choice = depth == 0 ? pick(0, 1) : pick(0, 9);
    if (choice == 0) {
      const int64_t constant = pick(-6, 6);
      return {constant, constant};
    }
    if (choice <= 2) {
      const std::string& name = names[static_cast<size_t>(pick(0, 2))];
      return {Dim::symbol(name), values_.at(name)};
    }
    const Sample x = make(depth - 1);
    Sample y = make(depth - 1);
    const bool divides = choice == 6 || choice == 7;
    if (divides && pick(0, 2) > 0) {
      const int64_t c = pick(1, 7);
      y = {c, c};
    }
    if (divides && y.dim == Dim(0)) y = {2, 2};
    const bool known = x.value && y.value && !(divides && *y.value == 0);
    const auto with = [&](Dim dim, auto function) { return Sample{std::move(dim), known ? std::optional(function(*x.value, *y.value)) : std::nullopt}; };
    switch (choice) {
      case 3: return with(x.dim + y.dim, [](int64_t p, int64_t q) { return p + q; });
      case 4: return with(x.dim - y.dim, [](int64_t p, int64_t q) { return p - q; });
      case 5: return with(x.dim * y.dim, [](int64_t p, int64_t q) { return p * q; });
      case 6: return with(floordiv(x.dim, y.dim), [](int64_t p, int64_t q) { return floor_of(p, q); });
      case 7: return with(mod(x.dim, y.dim), [](int64_t p, int64_t q) { return p - q * floor_of(p, q); });
      case 8: return with(min(x.dim, y.dim), [](int64_t p, int64_t q) { return std::min(p, q); });
      default: return with(max(x.dim, y.dim), [](int64_t p, int64_t q) { return std::max(p, q); });
    }
  }

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

 private:
  std::mt19937_64 random_;
  SymbolValues values_;
};

SymbolValues random_values(uint64_t seed) {
  std::mt19937_64 random(seed);
  SymbolValues values;
  for (const std::string& name : names) values[name] = static_cast<int64_t>(random() % 25) - 8;
  return values;
}

TEST(DimTest, RandomExpressionsEvaluateAsComputedDirectly) {
  int checked = 0;
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(testing::rounds(20000)); ++seed) {
    const SymbolValues values = random_values(seed);
    const Sample sample = Generator(seed, values).make(4);
    if (!sample.value) continue;
    ++checked;
    ASSERT_EQ(evaluate(sample.dim, values), *sample.value) << "seed " << seed << ": " << sample.dim.text();
    ASSERT_EQ(substitute(sample.dim, values), Dim(*sample.value)) << "seed " << seed << ": " << sample.dim.text();
  }
  EXPECT_GT(checked, testing::rounds(15000));
}

TEST(DimTest, TextReadsBackAsTheSameDim) {
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(testing::rounds(20000)); ++seed) {
    const Dim dim = Generator(seed, random_values(seed)).make(4).dim;
    const Dim read = parse_dim(dim.text());
    ASSERT_EQ(read, dim) << "seed " << seed << ": " << dim.text() << " read as " << read.text();
    ASSERT_EQ(read.text(), dim.text());
  }
}

TEST(DimTest, SubstitutionInStepsEqualsSubstitutionAtOnce) {
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(testing::rounds(10000)); ++seed) {
    const SymbolValues values = random_values(seed);
    const Sample sample = Generator(seed, values).make(4);
    if (!sample.value) continue;
    const auto rename = [](const std::string& name) -> std::optional<Dim> {
      if (name == "a") return Dim::symbol("q") + 3;
      return std::nullopt;
    };
    SymbolValues renamed = values;
    renamed["q"] = values.at("a") - 3;
    try {
      ASSERT_EQ(evaluate(sample.dim.substitute(rename), renamed), *sample.value) << "seed " << seed << ": " << sample.dim.text();
    } catch (const UserError& error) {
      // A divisor that only the renaming shows to be zero somewhere else is no matter.
      FAIL() << "seed " << seed << ": " << sample.dim.text() << ": " << error.what();
    }
  }
}

TEST(DimTest, OrderIsTotalAndConsistent) {
  std::vector<Dim> dims;
  for (uint64_t seed = 0; seed < 60; ++seed) dims.push_back(Generator(seed, random_values(seed)).make(3).dim);
  for (const Dim& x : dims) {
    for (const Dim& y : dims) {
      ASSERT_EQ((x <=> y) == 0, x == y);
      ASSERT_EQ(x == y, x.text() == y.text());
      ASSERT_EQ(x<y, y> x);
      for (const Dim& z : dims) {
        if (x < y && y < z) {
          ASSERT_TRUE(x < z);
        }
      }
    }
  }
}

TEST(DimTest, CanonicalForms) {
  const Dim n = sym("n"), m = sym("m");
  EXPECT_EQ((n + m) * (n - m), n * n - m * m);
  EXPECT_EQ(2 * n + 1 - n - n, Dim(1));
  EXPECT_EQ(floordiv(n * m, n), m);
  EXPECT_EQ(floordiv(4 * n + 6, 2), 2 * n + 3);
  EXPECT_EQ(floordiv(4 * n + 2, 8), floordiv(2 * n + 1, 4));
  EXPECT_EQ(floordiv(floordiv(n, 2), 3), floordiv(n, 6));
  EXPECT_EQ(floordiv(n * m + n, n), m + 1);
  EXPECT_EQ(floordiv(n * m * 3 + m, n), 3 * m + floordiv(m, n));
  EXPECT_EQ(mod(n * 6 + 7, 3), Dim(1));
  EXPECT_EQ(mod(mod(n, 12), 4), mod(n, 4));
  EXPECT_EQ(mod(mod(n, 4), 12), mod(n, 4));
  EXPECT_EQ(mod(n * m, m), Dim(0));
  EXPECT_EQ(min(n, min(m, n)), min(m, n));
  EXPECT_EQ(min(n + 3, n), n);
  EXPECT_EQ(max(n + 3, max(n, 5)), max(5, n + 3));
  EXPECT_EQ(ceildiv(n, 4), floordiv(n + 3, 4));
  EXPECT_EQ(floordiv(n, -2), floordiv(-1 * n, 2));
  EXPECT_EQ(floordiv(-7, 2), Dim(-4));
  EXPECT_EQ(mod(-7, 2), Dim(1));
  EXPECT_EQ(mod(7, -2), Dim(-1));
}

TEST(DimTest, ExactQuotients) {
  const Dim n = sym("n"), m = sym("m");
  EXPECT_EQ(exact_quotient(n * n - m * m, n + m), n - m);
  EXPECT_EQ(exact_quotient(6 * n * m, 3 * n), 2 * m);
  EXPECT_EQ(exact_quotient(6 * n + 3, 6), std::nullopt);
  EXPECT_EQ(exact_quotient(n, m), std::nullopt);
  EXPECT_EQ(exact_quotient(n, 0), std::nullopt);
  EXPECT_EQ(exact_quotient(0, n), Dim(0));
  EXPECT_EQ(exact_quotient(7, 2), std::nullopt);
}

TEST(DimTest, Texts) {
  EXPECT_EQ((2 * sym("batch") + 1).text(), "2*batch + 1");
  EXPECT_EQ(floordiv(sym("batch") + 1, 2).text(), "floordiv(batch + 1, 2)");
  EXPECT_EQ(max(0, min(4, 10 - 4 * sym("coord.data"))).text(), "max(0, min(4, 10 - 4*coord.data))");
  EXPECT_EQ((Dim(INT64_MIN) + sym("a")).text(), "a + -9223372036854775808");
  EXPECT_EQ(text(Shape{sym("batch"), 64}), "[batch, 64]");
  EXPECT_EQ(text(Shape{}), "[]");
  EXPECT_EQ(element_count(Shape{sym("n"), 3, sym("n")}), 3 * sym("n") * sym("n"));
  EXPECT_EQ(parse_dim("(a + 1) * (a - 1) # square").text(), "a*a - 1");
  EXPECT_EQ(parse_dim("ceildiv(a, 4) - -3").text(), "floordiv(a + 3, 4) + 3");
  EXPECT_EQ(parse_dim("min(a, 3, b, 2)").text(), "min(2, a, b)");
  EXPECT_EQ(parse_dim("-9223372036854775808"), Dim(INT64_MIN));
  EXPECT_EQ(sym("batch").symbol_name(), "batch");
  EXPECT_EQ((sym("batch") + 1).symbol_name(), std::nullopt);
  EXPECT_EQ(floordiv(sym("z") * sym("a"), sym("k")).symbols(), (std::vector<std::string>{"a", "k", "z"}));
}

TEST(DimTest, BadTextIsOneClearError) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "size:1:1: found the end, wanted a number, a name or '('"},
      {"a +", "size:1:4: found the end, wanted a number, a name or '('"},
      {"(a", "size:1:3: found the end, wanted ')'"},
      {"a b", "size:1:3: found 'b', wanted the end"},
      {"a / 2", "size:1:3: found '/', wanted the end"},
      {"floor(a, 2)", "size:1:6: found function 'floor', wanted floordiv, ceildiv, mod, min or max"},
      {"mod(a)", "size:1:6: mod takes two sizes"},
      {"mod(a, 2, 3)", "size:1:12: mod takes two sizes"},
      {"floordiv(a, 0)", "size: floordiv by zero: a"},
      {"mod(3, 0)", "size: mod by zero"},
      {"9223372036854775808", "size:1:1: integer does not fit 64 bits"},
      {"9223372036854775807 + 1", "size overflows 64 bits"},
      {"3a", "size:1:1: found '3a', wanted an integer"},
      {"$", "size:1:1: found '$', wanted a number, a name or '('"},
  };
  for (const auto& [input, message] : cases) {
    try {
      parse_dim(input);
      ADD_FAILURE() << "no error for " << input;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), message) << input;
    }
  }
}

TEST(DimTest, SizeAndNestingAreBounded) {
  EXPECT_THROW(parse_dim(std::string(100000, '(')), UserError);
  EXPECT_THROW(parse_dim(std::string(5000, '(')), UserError);
  EXPECT_THROW(parse_dim(std::string(5000, '-') + "a"), UserError);
  std::string deep = "a";
  for (int i = 0; i < 80; ++i) deep = "mod(" + deep + " + b, a)";
  EXPECT_THROW(parse_dim(deep), UserError);
  // Each doubles the tree: without a bound its text would not end.
  Dim dim = sym("a");
  EXPECT_THROW(for (int i = 0; i < 60; ++i) dim = floordiv(dim, sym("b")) * sym("c") + mod(dim, sym("d"));, UserError);
  Dim power = sym("a") + sym("b") + sym("c");
  EXPECT_THROW(for (int i = 0; i < 12; ++i) power = power * power;, UserError);
  EXPECT_THROW(Dim::symbol("3x"), UserError);
  EXPECT_THROW(Dim::symbol("a b"), UserError);
  EXPECT_THROW(Dim::symbol(""), UserError);
  EXPECT_THROW(sym("a").constant(), InternalError);
}

TEST(DimTest, ConstantsAreOverflowChecked) {
  EXPECT_THROW(Dim(INT64_MAX) + 1, UserError);
  EXPECT_THROW(Dim(INT64_MIN) - 1, UserError);
  EXPECT_THROW(Dim(INT64_MAX) * 2, UserError);
  EXPECT_THROW(floordiv(INT64_MIN, -1), UserError);
  EXPECT_THROW(evaluate(sym("n") * sym("n"), {{"n", int64_t{1} << 40}}), UserError);
  EXPECT_THROW(evaluate(sym("n"), {}), UserError);
  EXPECT_EQ(mod(INT64_MIN, -1), Dim(0));
}

}  // namespace tensor_dim_test
}  // namespace stepgraph
