// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): a bijection
// of a 128-bit counter for each 64-bit key. Random numbers of a step are a function of what they belong to, so nothing here has state.
#pragma once
#include <array>
#include <cstdint>

namespace stepgraph {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// In [0, 1): the upper 24 bits over 2^24, so that the value is exact in f32 and never rounds to 1.
double uniform_from_bits(uint32_t bits);
/// Standard normal by Box and Muller: sqrt(-2 ln u) cos(2 pi v) with u = (first + 1) / 2^32 in (0, 1] and v = second / 2^32, in f64.
/// Deterministic for one C library; at most 6.7 in magnitude.
double normal_from_bits(uint32_t first, uint32_t second);

}  // namespace stepgraph
