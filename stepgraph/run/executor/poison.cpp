// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/poison.h"

#include <algorithm>
#include <functional>

namespace stepgraph {
namespace {

using Visit = std::function<void(const View&)>;
void views_of(const FormCall& call, const Visit& visit) {
  for (const FormLaunch& launch : call.launches) std::for_each(launch.operands.begin(), launch.operands.end(), visit);
}
void views_of(const MatMulCall& call, const Visit& visit) { visit(call.lhs), visit(call.rhs), visit(call.out); }
void views_of(const ConvolutionCall& call, const Visit& visit) { visit(call.a), visit(call.b), visit(call.out); }
void views_of(const AttentionCall& call, const Visit& visit) {
  for (const View* view : {&call.q, &call.k, &call.v, &call.out, &call.lse}) visit(*view);
  if (call.mask) visit(*call.mask);
  if (!call.gradient) return;
  const AttentionCall::Gradient& gradient = *call.gradient;
  for (const View* view : {&gradient.d_out, &gradient.d_lse, &gradient.d_q, &gradient.d_k, &gradient.d_v}) visit(*view);
}
void views_of(const EvaluateCall& call, const Visit& visit) {
  std::for_each(call.inputs.begin(), call.inputs.end(), visit);
  std::for_each(call.outputs.begin(), call.outputs.end(), visit);
}
void views_of(const CollectiveCall& call, const Visit& visit) { visit(call.input), visit(call.output); }
void views_of(const Repeat& repeat, const Visit& visit) {
  for (const Instruction& instruction : repeat.body)
    std::visit([&](const auto& op) { views_of(op, visit); }, instruction.op);
}

}  // namespace

BufferUses buffer_uses(const PlanEntry& entry) {
  BufferUses uses{std::vector<int>(entry.buffers.size(), -1), std::vector<int>(entry.buffers.size(), -1)};
  int now = 0;
  const Visit use = [&](const View& view) {
    const auto buffer = static_cast<size_t>(view.buffer);
    if (uses.first[buffer] < 0) uses.first[buffer] = now;
    uses.last[buffer] = now;
  };
  for (const Instruction& instruction : entry.instructions) {
    std::visit([&](const auto& op) { views_of(op, use); }, instruction.op);
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
