// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/poison.h"

#include <algorithm>
#include <cstring>

#include "stepgraph/base/error.h"
#include "stepgraph/run/executor/mapping.h"

namespace stepgraph {
namespace {

constexpr int canary = 0xa5;  // no NaN, and no small number

bool is_placed(const Buffer& buffer) { return buffer.space == Space::Arena; }

}  // namespace

BufferUses buffer_uses(const PlanEntry& entry) {
  BufferUses uses{std::vector<int>(entry.buffers.size(), -1), std::vector<int>(entry.buffers.size(), -1)};
  int now = 0;
  const auto use = [&](const View& view) {
    const auto buffer = static_cast<size_t>(view.buffer);
    if (uses.first[buffer] < 0) uses.first[buffer] = now;
    uses.last[buffer] = now;
  };
  for (const Instruction& instruction : entry.instructions) {
    for_each_view(instruction.op, use);
    ++now;
  }
  for (const PlanValue& output : entry.outputs) use(output.view);
  return uses;
}

std::vector<int> buffers_that_end(const PlanEntry& entry, const BufferUses& uses, int index) {
  std::vector<int> ended;
  for (size_t i = 0; i < entry.buffers.size(); ++i) {
    const Buffer& buffer = entry.buffers[i];
    if (buffer.space != Space::Arena || uses.last[i] != index) continue;
    bool is_free = true;
    for (size_t j = 0; j < entry.buffers.size() && is_free; ++j) {
      const Buffer& other = entry.buffers[j];
      const bool overlaps = j != i && other.space == Space::Arena && other.offset < buffer.offset + buffer.bytes && buffer.offset < other.offset + other.bytes;
      is_free = !(overlaps && uses.first[j] >= 0 && uses.first[j] <= index && uses.last[j] > index);
    }
    if (is_free) ended.push_back(static_cast<int>(i));
  }
  return ended;
}

StepPlan with_canaries(StepPlan plan) {
  for (PlanEntry& entry : plan.entries) {
    int64_t end = canary_bytes;
    for (Buffer& buffer : entry.buffers) {
      if (!is_placed(buffer)) continue;
      buffer.offset = end;
      end += static_cast<int64_t>(padded(static_cast<size_t>(buffer.bytes))) + canary_bytes;
    }
    const int64_t unit = std::max<int64_t>(1, plan.target.granularity_bytes);
    entry.arena_bytes = (end + unit - 1) / unit * unit;
  }
  return plan;
}

void write_canaries(const PlanEntry& entry, std::byte* arena) {
  int64_t end = 0;
  for (const Buffer& buffer : entry.buffers) {
    if (!is_placed(buffer)) continue;
    std::memset(arena + end, canary, static_cast<size_t>(buffer.offset - end));
    end = buffer.offset + buffer.bytes;
  }
  std::memset(arena + end, canary, static_cast<size_t>(entry.arena_bytes - end));
}

void check_canaries(const PlanEntry& entry, const std::byte* arena) {
  int64_t end = 0;
  const Buffer* before = nullptr;
  const auto check = [&](int64_t begin, int64_t to, const Buffer* behind) {
    for (int64_t i = begin; i < to; ++i)
      SG_CHECK(arena[i] == std::byte{canary}, "entry " + entry.name + " wrote " + (before != nullptr ? "behind " + before->label : "before all buffers") +
                                                  (behind != nullptr ? " or before " + behind->label : "") + ", byte " + std::to_string(i - begin));
  };
  for (const Buffer& buffer : entry.buffers) {
    if (!is_placed(buffer)) continue;
    check(end, buffer.offset, &buffer);
    end = buffer.offset + buffer.bytes, before = &buffer;
  }
  check(end, entry.arena_bytes, nullptr);
}

}  // namespace stepgraph
