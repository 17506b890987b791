// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/plan_memory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/core.h>

namespace stepgraph {
namespace {

constexpr int64_t alignment = 64;
int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }


struct ViewVisitor {
  std::vector<int>& buffers;
  void add(const View& view) { buffers.push_back(view.buffer); }
  void operator()(const FormCall& call) {
    for (const FormLaunch& launch : call.launches)
      for (const View& view : launch.operands) add(view);
  }
  void operator()(const MatMulCall& call) { add(call.lhs), add(call.rhs), add(call.out); }
  void operator()(const ConvolutionCall& call) { add(call.a), add(call.b), add(call.out); }
  void operator()(const AttentionCall& call) {
    for (const View* view : {&call.q, &call.k, &call.v, &call.out, &call.lse}) add(*view);
    if (call.mask) add(*call.mask);
    if (!call.gradient) return;
    const AttentionCall::Gradient& gradient = *call.gradient;
    for (const View* view : {&gradient.d_out, &gradient.d_lse, &gradient.d_q, &gradient.d_k, &gradient.d_v}) add(*view);
  }
  void operator()(const EvaluateCall& call) {
    for (const View& view : call.inputs) add(view);
    for (const View& view : call.outputs) add(view);
  }
  void operator()(const CollectiveCall& call) { add(call.input), add(call.output); }
  void operator()(const Repeat& repeat) {
    for (const Instruction& instruction : repeat.body) std::visit(*this, instruction.op);
  }
};

struct Life {
  int buffer = 0;
  int first = std::numeric_limits<int>::max(), last = -1;
  int64_t bytes = 0;
};

std::vector<Life> lives_of(const PlanEntry& entry) {
  std::vector<Life> lives(entry.buffers.size());
  for (size_t i = 0; i < entry.instructions.size(); ++i) {
    std::vector<int> touched;
    ViewVisitor visitor{touched};
    std::visit(visitor, entry.instructions[i].op);
    for (const int buffer : touched) {
      Life& life = lives[static_cast<size_t>(buffer)];
      life.first = std::min(life.first, static_cast<int>(i));
      life.last = std::max(life.last, static_cast<int>(i));
    }
  }
  for (const PlanValue& output : entry.outputs) lives[static_cast<size_t>(output.view.buffer)].last = static_cast<int>(entry.instructions.size());
  std::vector<Life> arena;
  for (size_t b = 0; b < lives.size(); ++b) {
    lives[b].buffer = static_cast<int>(b);
    lives[b].bytes = entry.buffers[b].bytes;
    if (entry.buffers[b].space == Space::Arena && lives[b].last >= 0) arena.push_back(lives[b]);
  }
  return arena;
}

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
  const std::vector<Life> lives = lives_of(entry);
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
  return {lower_bound(lives, entry.instructions.size()), entry.arena_bytes};
}

}  // namespace stepgraph
