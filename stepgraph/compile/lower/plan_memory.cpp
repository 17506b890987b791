// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/plan_memory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/core.h>

namespace stepgraph {
namespace {

constexpr int64_t alignment = 64;
int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

struct Life {
  int buffer = 0;
  int first = std::numeric_limits<int>::max(), last = -1;
  int64_t bytes = 0;
};

/// Instructions in the order of a run, those of a repeat's body once. A buffer that is touched in one body alone lives between its touches there: nothing is left for the
/// next iteration. What is touched outside as well lives through all of the repeat.
class Lives {
 public:
  explicit Lives(const PlanEntry& entry) : touches_(entry.buffers.size()) {
    bodies_.push_back({0, 0, -1});
    walk(entry.instructions, 0);
    for (const PlanValue& output : entry.outputs) touches_[static_cast<size_t>(output.view.buffer)].push_back({count_, 0});
  }
  size_t count() const { return static_cast<size_t>(count_); }

  std::vector<Life> of_arena(const PlanEntry& entry) const {
    std::vector<Life> lives;
    for (size_t b = 0; b < touches_.size(); ++b) {
      if (entry.buffers[b].space != Space::Arena || touches_[b].empty()) continue;
      Life life;
      life.buffer = static_cast<int>(b);
      life.bytes = entry.buffers[b].bytes;
      int common = touches_[b][0].body;
      for (const Touch& touch : touches_[b]) common = common_body(common, touch.body);
      for (const Touch& touch : touches_[b]) {
        const auto [first, last] = seen_from(common, touch);
        life.first = std::min(life.first, first);
        life.last = std::max(life.last, last);
      }
      lives.push_back(life);
    }
    return lives;
  }

 private:
  /// 0 is the entry itself.
  struct Body {
    int first = 0, last = 0, parent = -1;
  };
  struct Touch {
    int position = 0, body = 0;
  };

  void walk(const std::vector<Instruction>& instructions, int body) {
    for (const Instruction& instruction : instructions) {
      if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) {
        const int inner = static_cast<int>(bodies_.size());
        bodies_.push_back({count_, 0, body});
        walk(repeat->body, inner);
        bodies_[static_cast<size_t>(inner)].last = count_ - 1;
        continue;
      }
      for_each_view(instruction.op, [&](const View& view) { touches_[static_cast<size_t>(view.buffer)].push_back({count_, body}); });
      ++count_;
    }
  }
  /// Outer bodies have lower numbers than those in them.
  int common_body(int a, int b) const {
    while (a != b) (a > b ? a : b) = bodies_[static_cast<size_t>(std::max(a, b))].parent;
    return a;
  }
  std::pair<int, int> seen_from(int body, const Touch& touch) const {
    if (touch.body == body) return {touch.position, touch.position};
    int inner = touch.body;
    while (bodies_[static_cast<size_t>(inner)].parent != body) inner = bodies_[static_cast<size_t>(inner)].parent;
    return {bodies_[static_cast<size_t>(inner)].first, bodies_[static_cast<size_t>(inner)].last};
  }

  std::vector<std::vector<Touch>> touches_;  // by buffer
  std::vector<Body> bodies_;
  int count_ = 0;
};

/// Each buffer in the smallest gap that holds it among those that live with it. Offsets by index into `lives`; the end of the highest one.
int64_t place(const std::vector<Life>& lives, const std::vector<size_t>& order, std::vector<int64_t>& offsets) {
  std::vector<size_t> placed;  // by offset
  int64_t end = 0;
  for (const size_t index : order) {
    const Life& life = lives[index];
    const int64_t bytes = rounded_up(std::max<int64_t>(life.bytes, 1), alignment);
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), free_from = 0;
    for (const size_t other : placed) {
      const Life& there = lives[other];
      if (there.last < life.first || life.last < there.first) continue;
      const int64_t gap = offsets[other] - free_from;
      if (gap >= bytes && gap < best_gap) best = free_from, best_gap = gap;
      free_from = std::max(free_from, offsets[other] + rounded_up(std::max<int64_t>(there.bytes, 1), alignment));
    }
    offsets[index] = best >= 0 ? best : free_from;
    end = std::max(end, offsets[index] + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index, [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }), index);
  }
  return end;
}

int64_t lower_bound(const std::vector<Life>& lives, size_t instructions) {
  std::vector<int64_t> change(instructions + 2, 0);
  for (const Life& life : lives) {
    change[static_cast<size_t>(std::max(0, std::min(life.first, life.last)))] += rounded_up(life.bytes, alignment);
    change[static_cast<size_t>(life.last) + 1] -= rounded_up(life.bytes, alignment);
  }
  int64_t live = 0, most = 0;
  for (const int64_t by : change) most = std::max(most, live += by);
  return most;
}

}  // namespace

MemoryReport plan_memory(PlanEntry& entry, const SymbolTable& symbols, const Target& target) {
  for (Buffer& buffer : entry.buffers) {
    if (buffer.space != Space::Arena) continue;
    const int64_t most = symbols.bounds(buffer.elements).maximum;
    if (most == INT64_MAX) throw UserError(fmt::format("no memory plan: {} elements ({}) have no maximum ({})", buffer.label, buffer.elements.text(), symbols.describe(buffer.elements)));
    buffer.bytes = std::max<int64_t>(most, 0) * static_cast<int64_t>(size_bytes(buffer.dtype));
  }
  const Lives order_of_run(entry);
  const std::vector<Life> lives = order_of_run.of_arena(entry);
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
  return {lower_bound(lives, order_of_run.count()), entry.arena_bytes};
}

}  // namespace stepgraph
