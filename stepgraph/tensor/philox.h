// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): a bijection
// of a 128-bit counter for each 64-bit key. Nothing here has state: what is drawn is a function of a key and of an element's number. Counters (lowest
// word first) are (element / 4, 0, 0) of a draw, its number in two words, and (operand, 0, 1) of a fold, so that the two never meet.
#pragma once
#include <array>
#include <cstdint>
#include "stepgraph/tensor/dtype.h"

namespace stepgraph {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// In [0, 1): the upper 24 bits over 2^24, so that the value is exact in f32 and never rounds to 1.
double uniform_from_bits(uint32_t bits);
/// Two independent standard normals by Box and Muller: sqrt(-2 ln u) times the cosine and the sine of 2 pi v, with u = (first + 1) / 2^32 in (0, 1] and
/// v = second / 2^32, in f64. Deterministic for one C library; at most 6.7 in magnitude.
std::array<double, 2> normals_from_bits(uint32_t first, uint32_t second);

/// Element `element` of what a key draws: uniform in [0, 1), exact in the dtype, by word element mod 4 of its block; standard normal, where an even element
/// and the next share their two words, the even one with the cosine and the odd one with the sine.
double uniform_element(uint64_t key, uint64_t element, DType dtype);
double normal_element(uint64_t key, uint64_t element);
/// Another key, of this one and a number.
uint64_t fold_key(uint64_t key, uint64_t operand);

}  // namespace stepgraph
