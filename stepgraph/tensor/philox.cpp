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

std::array<double, 2> normals_from_bits(uint32_t first, uint32_t second) {
  const double u = (static_cast<double>(first) + 1) * 0x1p-32;
  const double angle = 2 * std::numbers::pi * (static_cast<double>(second) * 0x1p-32);
  const double radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

namespace {

/// What a counter's last word tells apart.
enum class CounterUse : uint32_t { Draw = 0, Fold = 1 };

std::array<uint32_t, 4> philox_block(uint64_t key, uint64_t number, CounterUse use) {
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  return philox4x32({low(number), low(number >> 32), 0, static_cast<uint32_t>(use)}, {low(key), low(key >> 32)});
}

/// The mantissa bits of the dtype, of 24: fewer, so that the nearest value below 1 does not round to 1.
uint32_t uniform_mask(DType dtype) {
  switch (dtype) {
    case DType::BF16: return 0xFF000000U;
    case DType::F16: return 0xFFE00000U;
    case DType::F64: case DType::F32: case DType::I64: case DType::I32: case DType::I8: case DType::U8: case DType::Bool: return 0xFFFFFF00U;
  }
  return 0;
}

}  // namespace

double uniform_element(uint64_t key, uint64_t element, DType dtype) {
  return uniform_from_bits(philox_block(key, element / 4, CounterUse::Draw)[element % 4] & uniform_mask(dtype));
}

double normal_element(uint64_t key, uint64_t element) {
  const std::array<uint32_t, 4> words = philox_block(key, element / 4, CounterUse::Draw);
  const size_t pair = element % 4 & ~size_t{1};
  return normals_from_bits(words[pair], words[pair + 1])[element % 2];
}

uint64_t fold_key(uint64_t key, uint64_t operand) {
  const std::array<uint32_t, 4> words = philox_block(key, operand, CounterUse::Fold);
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

}  // namespace stepgraph
