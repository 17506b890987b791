// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/plan_memory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "stepgraph/program/buffer_lives.h"

namespace stepgraph {
namespace {

int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Each buffer in the smallest gap that holds it among those that live with it. Offsets by index into `lives`; the end of the highest one.
int64_t place(const std::vector<BufferLife>& lives, const std::vector<size_t>& order, std::vector<int64_t>& offsets) {
  std::vector<size_t> placed;  // by offset
  int64_t end = 0;
  for (const size_t index : order) {
    const BufferLife& life = lives[index];
    const int64_t bytes = arena_room(life.bytes);
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), free_from = 0;
    for (const size_t other : placed) {
      const BufferLife& there = lives[other];
      if (there.last < life.first || life.last < there.first) continue;
      const int64_t gap = offsets[other] - free_from;
      if (gap >= bytes && gap < best_gap) best = free_from, best_gap = gap;
      free_from = std::max(free_from, offsets[other] + arena_room(there.bytes));
    }
    offsets[index] = best >= 0 ? best : free_from;
    end = std::max(end, offsets[index] + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index, [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }), index);
  }
  return end;
}

}  // namespace

MemoryReport plan_memory(PlanEntry& entry, const SymbolTable& symbols, const Target& target) {
  for (Buffer& buffer : entry.buffers) {
    if (buffer.space != Space::Arena) continue;
    const int64_t most = symbols.bounds(buffer.elements).maximum;
    if (most == INT64_MAX) throw UserError(fmt::format("no memory plan: {} elements ({}) have no maximum ({})", buffer.label, buffer.elements.text(), symbols.describe(buffer.elements)));
    buffer.bytes = std::max<int64_t>(most, 0) * static_cast<int64_t>(size_bytes(buffer.dtype));
  }
  const BufferLives found = arena_lives(entry);
  const std::vector<BufferLife>& lives = found.lives;
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t i) { return static_cast<double>(lives[i].last - lives[i].first + 1); };
  const auto by = [&](const auto& before) {
    std::vector<size_t> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(), before);
    return sorted;
  };
  const std::array<std::vector<size_t>, 3> orders = {
      by([&](size_t a, size_t b) { return lives[a].bytes > lives[b].bytes; }),
      by([&](size_t a, size_t b) { return static_cast<double>(lives[a].bytes) * length(a) > static_cast<double>(lives[b].bytes) * length(b); }),
      by([&](size_t a, size_t b) { return lives[a].first < lives[b].first; }),
  };
  int64_t smallest = INT64_MAX;
  std::vector<int64_t> best;
  for (const std::vector<size_t>& candidate : orders) {
    std::vector<int64_t> offsets(lives.size(), 0);
    const int64_t end = place(lives, candidate, offsets);
    if (end >= smallest) continue;
    smallest = end;
    best = std::move(offsets);
  }
  for (size_t i = 0; i < lives.size(); ++i) entry.buffers[static_cast<size_t>(lives[i].buffer)].offset = best[i];
  entry.arena_bytes = lives.empty() ? 0 : rounded_up(smallest, target.granularity_bytes);
  return {live_bytes_peak(found).bytes, entry.arena_bytes};
}

}  // namespace stepgraph
