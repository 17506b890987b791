// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/tensor/dtype.h"

namespace stepgraph {
namespace tensor_dtype_test {

struct Half {
  uint16_t (*narrow)(double);
  uint16_t (*narrow_float)(float);
  float (*widen)(uint16_t);
  uint16_t infinity;
};
const Half halves[] = {{f64_to_f16, f32_to_f16, f16_to_f32, 0x7C00}, {f64_to_bf16, f32_to_bf16, bf16_to_f32, 0x7F80}};

/// The nearest number by search over all finite patterns, ties to the even pattern; beyond the midpoint to the next power, infinity.
uint16_t slow_narrow(const Half& half, double value) {
  const double magnitude = std::fabs(value);
  int low = 0, high = half.infinity - 1;
  while (low < high) {  // the last pattern that is not above
    const int middle = (low + high + 1) / 2;
    if (static_cast<double>(half.widen(static_cast<uint16_t>(middle))) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  const double below = half.widen(static_cast<uint16_t>(low));
  const double step = low + 1 < half.infinity ? half.widen(static_cast<uint16_t>(low + 1)) - below : below - half.widen(static_cast<uint16_t>(low - 1));
  const double excess = magnitude - below;  // exact: both have few bits around one place
  const bool up = excess > step / 2 || (excess == step / 2 && low % 2 == 1);
  return static_cast<uint16_t>((low + (up ? 1 : 0)) | (std::signbit(value) ? 0x8000 : 0));
}

TEST(DTypeTest, EveryPatternRoundTrips) {
  for (const Half& half : halves) {
    for (int pattern = 0; pattern < 65536; ++pattern) {
      const auto bits = static_cast<uint16_t>(pattern);
      const float value = half.widen(bits);
      if (std::isnan(value)) {
        EXPECT_TRUE((bits & 0x7FFF) > half.infinity);
        EXPECT_TRUE(std::isnan(half.widen(half.narrow(value))));
        EXPECT_TRUE(std::isnan(half.widen(half.narrow_float(value))));
        continue;
      }
      ASSERT_EQ(half.narrow(value), bits) << pattern;
      ASSERT_EQ(half.narrow_float(value), bits) << pattern;
    }
  }
}

TEST(DTypeTest, HalfwayCasesAndTheirNeighboursRoundOnce) {
  for (const Half& half : halves) {
    for (int pattern = 0; pattern < half.infinity; ++pattern) {
      const double below = half.widen(static_cast<uint16_t>(pattern));
      const double above =
          pattern + 1 < half.infinity ? half.widen(static_cast<uint16_t>(pattern + 1)) : below + (below - half.widen(static_cast<uint16_t>(pattern - 1)));
      const double middle = below + (above - below) / 2;
      for (const double value : {middle, std::nextafter(middle, 0), std::nextafter(middle, INFINITY)}) {
        ASSERT_EQ(half.narrow(value), slow_narrow(half, value)) << value;
        ASSERT_EQ(half.narrow(-value), slow_narrow(half, -value)) << -value;
      }
      const auto f32 = static_cast<float>(middle);
      for (const float value : {f32, std::nextafterf(f32, 0), std::nextafterf(f32, INFINITY)})
        if (std::isfinite(value)) {
          ASSERT_EQ(half.narrow_float(value), slow_narrow(half, value)) << value;
        }
    }
  }
}

TEST(DTypeTest, RandomBitPatternsRoundAsTheOracle) {
  std::mt19937_64 random(7);
  for (const Half& half : halves) {
    for (int i = 0; i < 100000; ++i) {
      const auto value = std::bit_cast<double>(random());
      const auto f32 = std::bit_cast<float>(static_cast<uint32_t>(random()));
      if (std::isfinite(value)) {
        ASSERT_EQ(half.narrow(value), slow_narrow(half, value)) << value;
      }
      if (std::isfinite(f32)) {
        ASSERT_EQ(half.narrow_float(f32), slow_narrow(half, f32)) << f32;
      }
    }
    EXPECT_EQ(half.narrow(INFINITY), half.infinity);
    EXPECT_EQ(half.narrow(-INFINITY), half.infinity | 0x8000);
    EXPECT_EQ(half.narrow(-0.0), 0x8000);
    EXPECT_EQ(half.narrow(std::numeric_limits<double>::denorm_min()), 0);
    EXPECT_EQ(half.narrow(-std::numeric_limits<double>::max()), half.infinity | 0x8000);
  }
}

TEST(DTypeTest, OneRoundingDiffersFromTwo) {
  // Just above the tie of bf16 1.0 and its successor, by less than f32 can hold: through f32 it would fall back onto the tie and to even.
  const double value = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(round_to(DType::BF16, value), 1.0 + 0x1p-7);
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(static_cast<float>(value))), 1.0F);
  EXPECT_EQ(round_to(DType::F16, 1.0 + 0x1p-11 + 0x1p-40), 1.0 + 0x1p-10);
  EXPECT_EQ(round_to(DType::F16, 65519.99), 65504);
  EXPECT_EQ(round_to(DType::F16, 65520), INFINITY);
  EXPECT_EQ(round_to(DType::F32, 0.1), static_cast<double>(0.1F));
  EXPECT_EQ(round_to(DType::F64, 0.1), 0.1);
  EXPECT_THROW(round_to(DType::I32, 1), InternalError);
}

TEST(DTypeTest, NamesAndSizes) {
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name(dtype)), dtype);
    EXPECT_FALSE(is_floating(dtype) && is_integer(dtype));
  }
  EXPECT_EQ(dtype_from_name("f8"), std::nullopt);
  EXPECT_EQ(size_bytes(DType::Bool), 1U);
  EXPECT_EQ(size_bytes(DType::BF16), 2U);
}

TEST(DTypeTest, Promotion) {
  const auto expect = [](DType a, DType b, DType result) {
    EXPECT_EQ(promote(a, b), result) << name(a) << " " << name(b);
    EXPECT_EQ(promote(b, a), result) << name(b) << " " << name(a);
  };
  expect(DType::BF16, DType::F16, DType::F32);
  expect(DType::F16, DType::I64, DType::F16);
  expect(DType::F32, DType::F64, DType::F64);
  expect(DType::BF16, DType::F32, DType::F32);
  expect(DType::U8, DType::I8, DType::I32);
  expect(DType::U8, DType::I32, DType::I32);
  expect(DType::I32, DType::I64, DType::I64);
  expect(DType::Bool, DType::U8, DType::U8);
  expect(DType::Bool, DType::BF16, DType::BF16);
  for (int a = 0; a < dtype_count; ++a) EXPECT_EQ(promote(static_cast<DType>(a), static_cast<DType>(a)), static_cast<DType>(a));
}

}  // namespace tensor_dtype_test
}  // namespace stepgraph
