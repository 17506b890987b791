// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/philox.h"

#include <cmath>
#include <numbers>

namespace stepgraph {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  // The multipliers and the Weyl increments (golden ratio, square root of 3 less 1) of the paper.
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

double uniform_from_bits(uint32_t bits) { return static_cast<double>(bits >> 8) * 0x1p-24; }

double normal_from_bits(uint32_t first, uint32_t second) {
  const double u = (static_cast<double>(first) + 1) * 0x1p-32;
  const double v = static_cast<double>(second) * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace stepgraph
