// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/tensor/literal.h"
#include "tests/support/error_of.h"

namespace stepgraph {
namespace tensor_literal_test {

const std::vector<DType> all_dtypes = {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool};

TEST(LiteralTest, CopiesShareUntilWritten) {
  Literal a = Literal::full(DType::F32, {2, 3}, 1.5);
  Literal b = a;
  EXPECT_EQ(a.data(), b.data());
  b.set(4, 7);
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(a.at(4), 1.5);
  EXPECT_EQ(b.at(4), 7);
  const std::byte* before = b.data();
  b.set(0, 1);
  EXPECT_EQ(b.data(), before) << "the sole owner writes in place";
}

TEST(LiteralTest, StorageIsAlignedAndZeroed) {
  for (const DType dtype : all_dtypes) {
    for (const int64_t size : {0, 1, 7, 1000}) {
      const Literal literal(dtype, {size});
      EXPECT_EQ(reinterpret_cast<uintptr_t>(literal.data()) % 64, 0U);
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ(literal.at(i), 0);
      EXPECT_EQ(literal.byte_count(), static_cast<size_t>(size) * size_bytes(dtype));
    }
  }
}

TEST(LiteralTest, SizesAreChecked) {
  EXPECT_EQ(testing::error_of([] { Literal(DType::F32, {int64_t{1} << 40, int64_t{1} << 40}); }), "size overflows 64 bits");
  EXPECT_EQ(testing::error_of([] { Literal(DType::F64, {INT64_MAX}); }), "size overflows 64 bits");
  EXPECT_EQ(testing::error_of([] { Literal(DType::F32, {-1}); }), "found size -1, wanted a size of at least 0");
  EXPECT_EQ(testing::error_of([] { Literal::from_doubles(DType::F32, {2}, std::array{1.0}); }), "literal: found 1 values, its sizes want 2");
  EXPECT_EQ(testing::error_of([] { (void)Literal(DType::F32, {4}).reshaped({3}); }), "literal: cannot reshape 4 elements to 3");
  EXPECT_THROW(Literal(DType::U8, {int64_t{1} << 60}), SystemError);
  EXPECT_EQ(element_count(Sizes{0, INT64_MAX, INT64_MAX}), 0);
  EXPECT_EQ(element_count(Sizes{}), 1);
}

TEST(LiteralTest, ConversionRoundsOnceAndSaturates) {
  const std::array<double, 14> values = {0.0, -0.5, 1.0, 2.999, -2.999, 127.9, 128.0, 255.5, 256.0, -1e30, 1e30, NAN, INFINITY, 1 + 0x1p-8 + 0x1p-40};
  const Literal source = Literal::from_doubles(DType::F64, {values.size()}, values);
  for (const DType dtype : all_dtypes) {
    const Literal direct = Literal::from_doubles(dtype, {values.size()}, values);
    EXPECT_TRUE(source.converted(dtype) == direct) << name(dtype);
  }
  const Literal bytes = source.converted(DType::I8);
  EXPECT_EQ(bytes.integer_at(1), 0);
  EXPECT_EQ(bytes.integer_at(3), 2);
  EXPECT_EQ(bytes.integer_at(4), -2);
  EXPECT_EQ(bytes.integer_at(6), 127);
  EXPECT_EQ(bytes.integer_at(9), -128);
  EXPECT_EQ(bytes.integer_at(11), 0);
  const Literal large = source.converted(DType::I64);
  EXPECT_EQ(large.integer_at(9), INT64_MIN);
  EXPECT_EQ(large.integer_at(10), INT64_MAX);
  EXPECT_EQ(large.integer_at(12), INT64_MAX);
  EXPECT_EQ(source.converted(DType::U8).integer_at(1), 0);
  const Literal truth = source.converted(DType::Bool);
  EXPECT_EQ(truth.integer_at(0), 0);
  EXPECT_EQ(truth.integer_at(1), 1);
  EXPECT_EQ(truth.integer_at(11), 1);
}

TEST(LiteralTest, AnyPairOfDtypesConvertsAsElementByElement) {
  const std::array<int64_t, 8> values = {0, 1, 2, 3, 100, 127, -1, -128};
  for (const DType from : all_dtypes) {
    const Literal source = Literal::from_integers(from, {2, 4}, values);
    for (const DType to : all_dtypes) {
      const Literal result = source.converted(to);
      EXPECT_EQ(result.dtype(), to);
      EXPECT_EQ(result.sizes(), source.sizes());
      for (int64_t i = 0; i < 8; ++i) {
        Literal one(to, {});
        if (is_floating(from))
          one.set(0, source.at(i));
        else
          one.set_integer(0, source.integer_at(i));
        EXPECT_EQ(result.at(i), one.at(0)) << name(from) << " to " << name(to) << " at " << i;
      }
    }
  }
}

TEST(LiteralTest, LargeIntegersRoundOnceToHalfWidths) {
  // 2^62 + 2^54 is the tie of bf16 between 2^62 and its successor; one more must round up, which f64 alone cannot see.
  const int64_t tie = (int64_t{1} << 62) + (int64_t{1} << 54);
  const Literal source = Literal::from_integers(DType::I64, {3}, std::array{tie, tie + 1, -(tie + 1)});
  const Literal rounded = source.converted(DType::BF16);
  EXPECT_EQ(rounded.at(0), 0x1p62);
  EXPECT_EQ(rounded.at(1), 0x1p62 + 0x1p55);
  EXPECT_EQ(rounded.at(2), -(0x1p62 + 0x1p55));
  EXPECT_EQ(Literal::integer(DType::F16, INT64_MIN).at(0), -INFINITY);
  EXPECT_EQ(Literal::integer(DType::BF16, INT64_MIN).at(0), -0x1p63);
  EXPECT_EQ(Literal::integer(DType::F32, (int64_t{1} << 24) + 1).at(0), 0x1p24);
}

TEST(LiteralTest, EqualityIsByBits) {
  EXPECT_FALSE(Literal::scalar(DType::F32, 0.0) == Literal::scalar(DType::F32, -0.0));
  EXPECT_TRUE(Literal::scalar(DType::F32, NAN) == Literal::scalar(DType::F32, NAN));
  EXPECT_FALSE(Literal(DType::F32, {2, 3}) == Literal(DType::F32, {3, 2}));
  EXPECT_FALSE(Literal(DType::F32, {0}) == Literal(DType::I32, {0}));
  EXPECT_TRUE(Literal() == Literal(DType::F32, {0}));
}

TEST(LiteralTest, TextIsShortest) {
  EXPECT_EQ(Literal::from_doubles(DType::F32, {2, 3}, std::array<double, 6>{1.0, 0.1, -2.5, 1e20, INFINITY, -INFINITY}).text(),
            "f32[2, 3] {1, 0.1, -2.5, 1e+20, inf, -inf}");
  EXPECT_EQ(Literal::scalar(DType::F64, -NAN).text(), "f64[] {nan}");
  EXPECT_EQ(Literal::scalar(DType::BF16, 0.1).text(), "bf16[] {0.1}");
  EXPECT_EQ(Literal::scalar(DType::F16, 1.0 / 3).text(), "f16[] {0.3333}");
  EXPECT_EQ(Literal::from_doubles(DType::Bool, {2}, std::array{1.0, 0.0}).text(), "bool[2] {true, false}");
  EXPECT_EQ(Literal::from_integers(DType::I64, {4}, std::array<int64_t, 4>{INT64_MIN, 2, 3, 4}).text(2), "i64[4] {-9223372036854775808, 2, ...}");
  EXPECT_EQ(Literal(DType::I32, {0, 5}).text(), "i32[0, 5] {}");
}

TEST(LiteralTest, HalfWidthTextReadsBack) {
  for (const DType dtype : {DType::BF16, DType::F16}) {
    Literal literal(dtype, {});
    for (int pattern = 0; pattern < 65536; ++pattern) {
      literal.as_mutable<uint16_t>()[0] = static_cast<uint16_t>(pattern);
      if (std::isnan(literal.at(0))) continue;
      const std::string text = literal.text();
      const size_t start = text.find('{') + 1;
      const Literal read = Literal::scalar(dtype, std::stod(text.substr(start, text.size() - start - 1)));
      ASSERT_TRUE(read == literal) << text;
    }
  }
}

TEST(LiteralTest, TypedViews) {
  const std::array<int32_t, 3> values = {1, -2, 3};
  Literal literal = Literal::of<int32_t>({3}, values);
  EXPECT_EQ(literal.dtype(), DType::I32);
  literal.as_mutable<int32_t>()[1] = 5;
  EXPECT_EQ(literal.as<int32_t>()[1], 5);
  EXPECT_EQ(literal.to_doubles(), (std::vector<double>{1, 5, 3}));
  EXPECT_EQ(literal.reshaped({3, 1}).data(), literal.data());
}

}  // namespace tensor_literal_test
}  // namespace stepgraph
