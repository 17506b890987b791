// SPDX-License-Identifier: Apache-2.0
// The hash of the call sites on the way to a Random. The walker extends it at each Call (and Loop iteration with fresh_random); Random extends it by its
// own `path`. So a Random inside Call sites a, b draws the same numbers as one that was inlined and has path [a, b].
#pragma once
#include <cstdint>

namespace stepgraph {

/// The finaliser of splitmix64 (Steele, Lea, Flood, 2014) over path and site.
inline uint64_t extend_random_path(uint64_t path, int64_t site) {
  uint64_t z = (path * 0xD1342543DE82EF95ULL) ^ (static_cast<uint64_t>(site) + 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace stepgraph
