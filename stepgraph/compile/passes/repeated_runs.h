// SPDX-License-Identifier: Apache-2.0
// Stretches of a sequence that repeat themselves at once: tokens[i] == tokens[i + period] all along.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stepgraph {

struct RepeatedRun {
  size_t start = 0, length = 0, period = 0;
  size_t count() const { return length / period; }
};

/// Runs of at least two periods, as long as they go, in order of discovery. Found are those in which some four tokens in a row come again first after one
/// period: all but artificial ones. Time near-linear in the number of tokens, by rolling hashes modulo 2^61-1 (Karp and Rabin, 1987): equality is
/// probable, and to be checked by the caller.
std::vector<RepeatedRun> repeated_runs(std::span<const uint64_t> tokens);

}  // namespace stepgraph
