// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/tensor/philox.h"

namespace stepgraph {
namespace tensor_philox_test {

TEST(PhiloxTest, PublishedVectors) {
  // The known answers that the authors publish with Random123 for philox4x32-10.
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}), (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformIsInRangeAndExactInF32) {
  EXPECT_EQ(uniform_from_bits(0), 0);
  EXPECT_EQ(uniform_from_bits(0xffffffff), 1 - 0x1p-24);
  EXPECT_LT(static_cast<float>(uniform_from_bits(0xffffffff)), 1.0F);
  EXPECT_EQ(uniform_from_bits(0x80000000), 0.5);
}

TEST(PhiloxTest, MomentsOfTheNormal) {
  EXPECT_TRUE(std::isfinite(normals_from_bits(0, 0)[0]));
  EXPECT_EQ(normals_from_bits(0xffffffff, 0)[0], 0);
  double sum = 0, squares = 0, fourth = 0;
  constexpr int count = 200000;
  for (uint64_t i = 0; i < count; ++i) {
    const double x = normal_element(0x200000001, i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Five standard deviations of each estimate.
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96.0 / count));
}

}  // namespace tensor_philox_test
}  // namespace stepgraph
