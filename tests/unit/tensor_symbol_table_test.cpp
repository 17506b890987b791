// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/tensor/dim.h"
#include "tests/support/effort.h"

namespace stepgraph {
namespace tensor_symbol_table_test {

/// a in [0, 7], b in [2, 12] in steps of 2, c in [-3, 4].
SymbolTable small_table() {
  SymbolTable table;
  table.declare({.name = "a", .maximum = 7});
  table.declare({.name = "b", .minimum = 1, .maximum = 13, .multiple_of = 2});
  table.declare({.name = "c", .minimum = -3, .maximum = 4});
  return table;
}

template <class Body>
void for_all_values(Body body) {
  for (int64_t a = 0; a <= 7; ++a)
    for (int64_t b = 2; b <= 12; b += 2)
      for (int64_t c = -3; c <= 4; ++c) body(SymbolValues{{"a", a}, {"b", b}, {"c", c}});
}

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}
  Dim make(int depth) {
    const int choice = depth == 0 ? pick(0, 1) : pick(0, 9);
    if (choice == 0) return pick(-6, 6);
    if (choice <= 2) return Dim::symbol(std::string(1, static_cast<char>('a' + pick(0, 2))));
    const Dim x = make(depth - 1), y = make(depth - 1);
    switch (choice) {
      case 3: return x + y;
      case 4: return x - y;
      case 5: return x * pick(-3, 3);
      case 6: return floordiv(x, pick(1, 6));
      case 7: return mod(x, pick(1, 6));
      case 8: return min(x, y);
      default: return max(x, y);
    }
  }
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

 private:
  std::mt19937_64 random_;
};

TEST(SymbolTableTest, AnswersHoldForEveryAssignment) {
  const SymbolTable table = small_table();
  int decided = 0;
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(testing::rounds(1500)); ++seed) {
    Generator generator(seed);
    const Dim x = generator.make(3), y = generator.make(2);
    const int64_t divisor = generator.pick(1, 6);
    const std::string where = "seed " + std::to_string(seed) + ": " + x.text() + " and " + y.text();
    const Bounds bounds = table.bounds(x);
    const Dim simple = table.simplify(x);
    const Truth equal = table.equal(x, y), less = table.less_or_equal(x, y), divides = table.divides(divisor, x);
    decided += less != Truth::Unknown ? 1 : 0;
    for_all_values([&](const SymbolValues& values) {
      const int64_t p = evaluate(x, values), q = evaluate(y, values);
      ASSERT_LE(bounds.minimum, p) << where;
      ASSERT_GE(bounds.maximum, p) << where;
      ASSERT_EQ(evaluate(simple, values), p) << where << " simplified " << simple.text();
      if (equal != Truth::Unknown) {
        ASSERT_EQ(p == q, equal == Truth::True) << where;
      }
      if (less != Truth::Unknown) {
        ASSERT_EQ(p <= q, less == Truth::True) << where;
      }
      if (divides != Truth::Unknown) {
        ASSERT_EQ(p % divisor == 0, divides == Truth::True) << where << " by " << divisor;
      }
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(decided, testing::rounds(500));
}

TEST(SymbolTableTest, SimplifyUsesMultiplesAndRanges) {
  SymbolTable table;
  const Dim batch = table.declare({.name = "batch", .minimum = 1, .maximum = 4096, .multiple_of = 8});
  const Dim n = table.declare({.name = "n", .minimum = 1, .maximum = 100});
  const Dim c = table.declare({.name = "coord.data", .kind = SymbolKind::Coordinate, .maximum = 3});
  EXPECT_EQ(table.simplify(2 * floordiv(batch, 2)), batch);
  EXPECT_EQ(table.simplify(floordiv(batch, 8) * 4), floordiv(batch, 2));
  EXPECT_EQ(table.simplify(floordiv(3 * batch, 2)), 3 * floordiv(batch, 2));
  EXPECT_EQ(table.simplify(floordiv(batch + n, 4)), floordiv(batch, 4) + floordiv(n, 4));
  EXPECT_EQ(table.simplify(mod(batch * n, 4)), Dim(0));
  EXPECT_EQ(table.simplify(min(n, 200)), n);
  EXPECT_EQ(table.simplify(max(n, 0)), n);
  EXPECT_EQ(table.simplify(min(floordiv(n + 1, 2), n)), floordiv(n + 1, 2));
  EXPECT_EQ(table.simplify(mod(c, 4)), c);
  EXPECT_EQ(table.simplify(mod(c + 4, 4)), c);
  EXPECT_EQ(table.simplify(floordiv(c, 4)), Dim(0));
  EXPECT_EQ(table.simplify(max(0, min(4, 16 - 4 * c))), Dim(4));
  EXPECT_EQ(table.simplify(Dim::symbol("unknown") + 0), Dim::symbol("unknown"));
  table.declare({.name = "fixed", .minimum = 5, .maximum = 5});
  EXPECT_EQ(table.simplify(Dim::symbol("fixed") * n), 5 * n);
}

TEST(SymbolTableTest, ThreeAnswers) {
  SymbolTable table;
  const Dim batch = table.declare({.name = "batch", .minimum = 1, .multiple_of = 2});
  const Dim n = table.declare({.name = "n"});
  EXPECT_EQ(table.equal(batch, batch + 1), Truth::False);
  EXPECT_EQ(table.equal(batch, 7), Truth::False);
  EXPECT_EQ(table.equal(batch, 8), Truth::Unknown);
  EXPECT_EQ(table.equal(2 * batch, batch + batch), Truth::True);
  EXPECT_EQ(table.equal(n, -1), Truth::False);
  EXPECT_EQ(table.equal(4 * n, 6), Truth::False);
  EXPECT_EQ(table.less_or_equal(2, batch), Truth::True);
  EXPECT_EQ(table.less_or_equal(batch, 1), Truth::False);
  EXPECT_EQ(table.less_or_equal(batch, n), Truth::Unknown);
  EXPECT_EQ(table.less_or_equal(ceildiv(n, 2), n), Truth::True);
  EXPECT_EQ(table.divides(4, 2 * batch), Truth::True);
  EXPECT_EQ(table.divides(4, batch), Truth::Unknown);
  EXPECT_EQ(table.divides(2, batch + 1), Truth::False);
  EXPECT_EQ(table.divides(n, 3 * n * batch), Truth::True);
  EXPECT_EQ(table.divides(0, 0), Truth::True);
  EXPECT_EQ(table.divides(0, 3), Truth::False);
  const Bounds bounds = table.bounds(3 * batch - 2);
  EXPECT_EQ(bounds.minimum, 4);
  EXPECT_EQ(bounds.maximum, INT64_MAX);
}

TEST(SymbolTableTest, DeclarationsAreChecked) {
  SymbolTable table;
  table.declare({.name = "n", .minimum = 1, .maximum = 9});
  EXPECT_EQ(table.declare({.name = "n", .minimum = 1, .maximum = 9}), Dim::symbol("n"));
  EXPECT_EQ(table.all().size(), 1U);
  const std::vector<std::pair<Symbol, std::string>> cases = {
      {{.name = "n", .minimum = 2, .maximum = 9}, "symbol n: declared twice with different ranges"},
      {{.name = "m", .minimum = 3, .maximum = 2}, "symbol m: empty range [3, 2]"},
      {{.name = "m", .minimum = 5, .maximum = 7, .multiple_of = 4}, "symbol m: no multiple of 4 in [5, 7]"},
      {{.name = "m", .multiple_of = 0}, "symbol m: found multiple of 0, wanted at least 1"},
      {{.name = "m", .maximum = 8, .buckets = {4, 4}}, "symbol m: buckets are not ascending at 4"},
      {{.name = "m", .maximum = 8, .buckets = {9}}, "symbol m: bucket 9 is not in its range"},
      {{.name = "m", .kind = SymbolKind::Derived, .definition = Dim::symbol("n") + Dim::symbol("m")},
       "symbol m: its definition m + n holds 'm', which is not declared before it"},
      {{.name = "m", .kind = SymbolKind::Derived, .minimum = 1, .maximum = 9, .definition = Dim::symbol("n") * 2},
       "symbol m: found the range [1, 9], its definition gives [2, 18]"},
      {{.name = "3"}, "size symbol: found name '3', wanted letters, digits, '_' and '.', starting with a letter or '_'"},
  };
  for (const auto& [symbol, message] : cases) {
    try {
      table.declare(symbol);
      ADD_FAILURE() << message;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), message);
    }
  }
  EXPECT_EQ(table.all().size(), 1U);
  table.declare({.name = "m", .minimum = 0, .multiple_of = 2});
  EXPECT_EQ(table.describe(Dim::symbol("n") * Dim::symbol("m")), "m in [0, inf] multiple of 2, n in [1, 9]");
}

TEST(SymbolTableTest, DerivedSymbolsStandForExpressions) {
  SymbolTable table;
  const Dim n = table.declare({.name = "n", .minimum = 1, .maximum = 9});
  const Dim c = table.declare({.name = "coord.data", .kind = SymbolKind::Coordinate, .maximum = 1});
  const Dim block = table.declare({.name = "block", .kind = SymbolKind::Derived, .definition = ceildiv(n, 2)});
  const Dim part = table.declare({.name = "part", .kind = SymbolKind::Derived, .definition = max(0, min(block, n - c * block))});
  // By intervals: n - c*block is not monotone in n.
  EXPECT_EQ(table.find("part")->minimum, 0);
  EXPECT_EQ(table.find("part")->maximum, 5);
  EXPECT_EQ(table.bounds(3 * part).maximum, 15);
  EXPECT_EQ(table.equal(2 * part, part + part), Truth::True);
  EXPECT_EQ(table.equal(part, block), Truth::Unknown);
  EXPECT_EQ(table.expand(2 * part + 1), 2 * max(0, min(ceildiv(n, 2), n - c * ceildiv(n, 2))) + 1);
  for (int64_t size = 1; size <= 9; ++size) {
    int64_t sum = 0;
    for (int64_t place : {0, 1}) {
      SymbolValues values = {{"n", size}, {"coord.data", place}, {"part", 77}};
      table.add_derived(values);
      EXPECT_EQ(values.at("block"), (size + 1) / 2);
      sum += values.at("part");
    }
    EXPECT_EQ(sum, size);
  }
  SymbolValues unknown = {{"n", 4}};
  table.add_derived(unknown);
  EXPECT_EQ(unknown.count("block"), 1U);
  EXPECT_EQ(unknown.count("part"), 0U);
}

TEST(SymbolTableTest, ExtremeRangesDoNotOverflow) {
  SymbolTable table;
  const Dim x = table.declare({.name = "x", .minimum = INT64_MIN, .maximum = INT64_MAX, .multiple_of = 3});
  const Dim y = table.declare({.name = "y", .minimum = INT64_MAX - 1, .maximum = INT64_MAX - 1});
  for (const Dim& dim : {x * x, x * -1, x - y, x * y, floordiv(x, 3), mod(x, y), min(x, y), x * INT64_MAX, x * INT64_MIN, floordiv(x, y), mod(y, x),
                         floordiv(y, x), y * 3 - x}) {
    const Bounds bounds = table.bounds(dim);
    EXPECT_LE(bounds.minimum, bounds.maximum) << dim.text();
    try {
      (void)table.equal(dim, INT64_MIN);
      (void)table.less_or_equal(dim, INT64_MAX);
      (void)table.divides(INT64_MIN, dim);
    } catch (const UserError& error) {
      EXPECT_STREQ(error.what(), "size overflows 64 bits");
    }
  }
  EXPECT_EQ(table.bounds(x * x).minimum, 0);
}

TEST(SymbolTable, ExtremesOfOneRangeAndHalvesInProducts) {
  SymbolTable table;
  const Dim s = table.declare({"s", SymbolKind::Size, 1, INT64_MAX, 1, {}}), rows = table.declare({"rows", SymbolKind::Size, 1, INT64_MAX, 2, {}});
  EXPECT_EQ(table.equal(max(Dim(0), s - 2), max(Dim(1), s - 1) - 1), Truth::True);
  EXPECT_EQ(table.equal(min(s, Dim(3)) + 1, min(s + 1, Dim(4))), Truth::True);
  EXPECT_EQ(table.equal(max(Dim(0), s - 2), max(Dim(1), s - 1)), Truth::False);
  EXPECT_EQ(table.equal(floordiv(rows, 2) * s * 2, rows * s), Truth::True);
  EXPECT_EQ(table.equal(rows - floordiv(rows, 2), floordiv(rows + 1, 2)), Truth::True);
  EXPECT_EQ(table.equal(floordiv(s, 2) * rows * 2, rows * s), Truth::Unknown);
}

}  // namespace tensor_symbol_table_test
}  // namespace stepgraph
