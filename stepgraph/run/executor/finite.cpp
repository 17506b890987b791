// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/finite.h"

#include <algorithm>
#include <functional>

#include "stepgraph/program/instruction_work.h"

namespace stepgraph {
namespace {

/// Signed integers: their comparison is an instruction everywhere.
template <class Bits>
bool all_below(const std::byte* elements, int64_t count, Bits exponent) {
  constexpr int64_t block = 4096;
  const auto* bits = reinterpret_cast<const Bits*>(elements);
  constexpr Bits magnitude = static_cast<Bits>(~(Bits{1} << (sizeof(Bits) * 8 - 1)));
  for (int64_t start = 0; start < count; start += block) {
    const int64_t end = std::min(count, start + block);
    Bits found = 0;
    for (int64_t i = start; i < end; ++i) found = static_cast<Bits>(found | ((bits[i] & magnitude) >= exponent ? Bits{1} : Bits{0}));
    if (found != 0) return false;
  }
  return true;
}

}  // namespace

bool all_finite(DType dtype, const std::byte* elements, int64_t count) {
  switch (dtype) {
    case DType::F64: return all_below<int64_t>(elements, count, int64_t{0x7ff} << 52);
    case DType::F32: return all_below<int32_t>(elements, count, 0x7f800000);
    case DType::BF16: return all_below<int16_t>(elements, count, 0x7f80);
    case DType::F16: return all_below<int16_t>(elements, count, 0x7c00);
    default: return true;
  }
}

std::set<int> unwatched_states(const StepPlan& plan, const PlanEntry& entry) {
  std::set<int> found;
  const auto note = [&](const View& view) {
    const Buffer& buffer = entry.buffers[static_cast<size_t>(view.buffer)];
    if (buffer.space == Space::State) found.insert(buffer.index);
  };
  const std::function<void(const Instruction&)> look = [&](const Instruction& instruction) {
    if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) {
      std::for_each(repeat->body.begin(), repeat->body.end(), look);
    } else if (const auto* call = std::get_if<FormCall>(&instruction.op)) {
      const std::vector<FormOperand>& operands = plan.forms[static_cast<size_t>(call->form)].operands;
      for (const FormLaunch& launch : call->launches)
        for (size_t i = 0; i < operands.size(); ++i)
          if (operands[i].is_written && !operands[i].is_watched) note(launch.operands[i]);
    } else {
      for_each_access(plan, instruction.op, [&](const View& view, DType, bool is_write) {
        if (is_write) note(view);
      });
    }
  };
  std::for_each(entry.instructions.begin(), entry.instructions.end(), look);
  return found;
}

}  // namespace stepgraph
