// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/poison.h"

#include <algorithm>

namespace stepgraph {
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

}  // namespace stepgraph
