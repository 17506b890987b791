// SPDX-License-Identifier: Apache-2.0
// Draws and folds against a second implementation, written from the paper and from the counters that philox.h says.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "stepgraph/tensor/philox.h"

namespace stepgraph {
namespace tensor_draws_test {

/// One round of Philox 4x32 as in the paper's figure, words in two pairs (L, R), products by 64-bit arithmetic; ten of them with keys that count up.
struct Words {
  uint32_t w[4];
};
Words philox_by_hand(uint64_t low_counter, uint64_t high_counter, uint64_t key) {
  uint32_t right0 = static_cast<uint32_t>(low_counter & 0xffffffff), left0 = static_cast<uint32_t>(low_counter / 0x100000000);
  uint32_t right1 = static_cast<uint32_t>(high_counter & 0xffffffff), left1 = static_cast<uint32_t>(high_counter / 0x100000000);
  for (uint64_t round = 0; round < 10; ++round) {
    const auto key0 = static_cast<uint32_t>((key & 0xffffffff) + round * 0x9E3779B9), key1 = static_cast<uint32_t>(key / 0x100000000 + round * 0xBB67AE85);
    const uint64_t product0 = static_cast<uint64_t>(right0) * 0xD2511F53, product1 = static_cast<uint64_t>(right1) * 0xCD9E8D57;
    const uint32_t next_right0 = static_cast<uint32_t>(product1 / 0x100000000) ^ left0 ^ key0,
                   next_right1 = static_cast<uint32_t>(product0 / 0x100000000) ^ left1 ^ key1;
    left0 = static_cast<uint32_t>(product1 & 0xffffffff), left1 = static_cast<uint32_t>(product0 & 0xffffffff);
    right0 = next_right0, right1 = next_right1;
  }
  return {{right0, left0, right1, left1}};
}

const std::vector<uint64_t> keys = {0, 1, 0xffffffff, 0x100000000, 0x0123456789abcdef, ~uint64_t{0}};
const std::vector<uint64_t> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 1000001, 0xffffffff, 0x100000000, 0x3fffffffe, 0x400000001, 0x123456789abc, ~uint64_t{0}};

TEST(Draws, UniformTakesAWordOfItsBlock) {
  for (uint64_t key : keys)
    for (uint64_t e : numbers) {
      const uint32_t word = philox_by_hand(e / 4, 0, key).w[e % 4];
      EXPECT_EQ(uniform_element(key, e, DType::F32), std::floor(word / 256.0) / 16777216) << key << " " << e;
      EXPECT_EQ(uniform_element(key, e, DType::F64), std::floor(word / 256.0) / 16777216);
      EXPECT_EQ(uniform_element(key, e, DType::BF16), std::floor(word / 16777216.0) / 256);
      EXPECT_EQ(uniform_element(key, e, DType::F16), std::floor(word / 2097152.0) / 2048);
    }
}

TEST(Draws, NormalsOfAPairShareTwoWords) {
  for (uint64_t key : keys)
    for (uint64_t e : numbers) {
      const Words words = philox_by_hand(e / 4, 0, key);
      const double first = words.w[e % 4 < 2 ? 0 : 2], second = words.w[e % 4 < 2 ? 1 : 3];
      const double radius = std::sqrt(-2 * std::log((first + 1) / 4294967296.0)), angle = 2 * std::acos(-1.0) * second / 4294967296.0;
      EXPECT_NEAR(normal_element(key, e), radius * (e % 2 == 0 ? std::cos(angle) : std::sin(angle)), 1e-12) << key << " " << e;
    }
}

TEST(Draws, AFoldIsNoBlockOfADraw) {
  for (uint64_t key : keys)
    for (uint64_t n : numbers) {
      const Words words = philox_by_hand(n, uint64_t{1} << 32, key);
      EXPECT_EQ(fold_key(key, n), words.w[0] + words.w[1] * uint64_t{0x100000000}) << key << " " << n;
    }
}

TEST(Draws, KeysOfNeighboursAreApart) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (uint64_t step = 0; step < 20; ++step)
      for (uint64_t draw = 0; draw < 20; ++draw) seen.insert(fold_key(fold_key(seed, step), draw));
  EXPECT_EQ(seen.size(), 8000U);
}

TEST(Draws, KnownAnswers) {
  // Of the plain implementation above, so that both cannot change together.
  EXPECT_EQ(philox_by_hand(0, 0, 0).w[0], 0x6627e8d5U);
  EXPECT_EQ(uniform_element(0, 0, DType::F32), (0x6627e8d5 >> 8) / 16777216.0);
  EXPECT_EQ(uniform_element(0, 3, DType::F32), (0x9b00dbd8 >> 8) / 16777216.0);
}

}  // namespace tensor_draws_test
}  // namespace stepgraph
