// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/crc32.h"

namespace stepgraph::pt2 {
namespace {

// A checksum is a polynomial over GF(2) modulo the one of CRC-32, its highest power in the lowest bit.
constexpr uint32_t modulus = 0xedb88320u;
constexpr uint32_t one = 0x80000000u;

uint32_t times_x(uint32_t a) { return a >> 1 ^ ((a & 1) != 0 ? modulus : 0); }

uint32_t product(uint32_t a, uint32_t b) {
  uint32_t result = 0;
  for (uint32_t bit = one; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) result ^= b;
    b = times_x(b);
  }
  return result;
}

}  // namespace

uint32_t crc32_joined(uint32_t a, uint32_t b, uint64_t bytes_of_b) {
  // Bytes behind a multiply it by x^8 each; the inversions at both ends cancel out.
  uint32_t shift = one;
  uint32_t power = one;
  for (int i = 0; i < 8; ++i) power = times_x(power);
  for (; bytes_of_b != 0; bytes_of_b >>= 1) {
    if ((bytes_of_b & 1) != 0) shift = product(shift, power);
    power = product(power, power);
  }
  return product(shift, a) ^ b;
}

}  // namespace stepgraph::pt2
