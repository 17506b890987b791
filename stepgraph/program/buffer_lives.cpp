// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/buffer_lives.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace stepgraph {
namespace {

class TouchedBuffers {
 public:
  explicit TouchedBuffers(const PlanEntry& entry) : touches_(entry.buffers.size()) {
    bodies_.push_back({0, 0, -1});
    walk(entry.instructions, 0, {});
    for (const PlanValue& output : entry.outputs) touches_[static_cast<size_t>(output.view.buffer)].push_back({count(), 0});
  }

  BufferLives take(const PlanEntry& entry) {
    BufferLives found;
    for (size_t b = 0; b < touches_.size(); ++b) {
      if (entry.buffers[b].space != Space::Arena || touches_[b].empty()) continue;
      BufferLife life{static_cast<int>(b), std::numeric_limits<int>::max(), -1, entry.buffers[b].bytes};
      int common = touches_[b][0].body;
      for (const Touch& touch : touches_[b]) common = common_body(common, touch.body);
      for (const Touch& touch : touches_[b]) {
        const auto [first, last] = seen_from(common, touch);
        life.first = std::min(life.first, first);
        life.last = std::max(life.last, last);
      }
      found.lives.push_back(life);
    }
    found.moments = std::move(moments_);
    return found;
  }

 private:
  /// 0 is the entry itself.
  struct Body {
    int first = 0, last = 0, parent = -1;
  };
  struct Touch {
    int position = 0, body = 0;
  };

  int count() const { return static_cast<int>(moments_.size()); }
  void walk(const std::vector<Instruction>& instructions, int body, const std::vector<int>& before) {
    for (size_t i = 0; i < instructions.size(); ++i) {
      std::vector<int> place = before;
      place.push_back(static_cast<int>(i));
      if (const auto* repeat = std::get_if<Repeat>(&instructions[i].op)) {
        const int inner = static_cast<int>(bodies_.size());
        bodies_.push_back({count(), 0, body});
        walk(repeat->body, inner, place);
        bodies_[static_cast<size_t>(inner)].last = count() - 1;
        continue;
      }
      for_each_view(instructions[i].op, [&](const View& view) { touches_[static_cast<size_t>(view.buffer)].push_back({count(), body}); });
      moments_.push_back({&instructions[i], std::move(place)});
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
  std::vector<PlanMoment> moments_;
};

}  // namespace

BufferLives arena_lives(const PlanEntry& entry) { return TouchedBuffers(entry).take(entry); }

int64_t arena_room(int64_t bytes) {
  constexpr int64_t alignment = 64;
  return (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

LivePeak live_bytes_peak(const BufferLives& lives) {
  std::vector<int64_t> change(lives.moments.size() + 2, 0);
  for (const BufferLife& life : lives.lives) {
    change[static_cast<size_t>(std::max(0, std::min(life.first, life.last)))] += arena_room(life.bytes);
    change[static_cast<size_t>(life.last) + 1] -= arena_room(life.bytes);
  }
  LivePeak peak;
  int64_t live = 0;
  for (size_t i = 0; i < change.size(); ++i)
    if ((live += change[i]) > peak.bytes) peak = {static_cast<int>(i), live};
  return peak;
}

}  // namespace stepgraph
