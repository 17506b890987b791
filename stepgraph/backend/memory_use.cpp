// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/memory_use.h"

#include <algorithm>
#include <map>

#include "stepgraph/program/instruction_work.h"
#include "stepgraph/program/verify_plan.h"
#include "stepgraph/run/executor/plan_executor.h"

namespace stepgraph {
namespace {

int64_t most_elements(const StepPlan& plan, const Dim& elements) {
  const int64_t most = plan.symbols.bounds(elements).maximum;
  return most == INT64_MAX ? 0 : std::max<int64_t>(most, 0);
}

struct FirstUses {
  int written = -1;  ///< moment
  bool is_kept = false;
};

/// Of each buffer: who writes it first, and whether what forward wrote is read later.
std::vector<FirstUses> first_uses(const StepPlan& plan, const PlanEntry& entry, const std::vector<PlanMoment>& moments) {
  std::vector<FirstUses> uses(entry.buffers.size());
  for (size_t i = 0; i < moments.size(); ++i) {
    for_each_access(plan, moments[i].instruction->op, [&](const View& view, DType, bool is_write) {
      FirstUses& use = uses[static_cast<size_t>(view.buffer)];
      if (is_write && use.written < 0) use.written = static_cast<int>(i);
      if (is_write || use.written < 0) return;
      const Phase by = moments[static_cast<size_t>(use.written)].instruction->phase, now = moments[i].instruction->phase;
      use.is_kept = use.is_kept || (by == Phase::Forward && now != Phase::Forward && now != Phase::None);
    });
  }
  return uses;
}

/// At the largest sizes of the plan; 0 where one has no maximum.
int64_t most_scratch(const StepPlan& plan, const PlanEntry& entry) {
  const bool is_bounded = std::all_of(plan.symbols.all().begin(), plan.symbols.all().end(), [](const Symbol& symbol) { return symbol.kind != SymbolKind::Size || symbol.maximum != INT64_MAX; });
  if (!is_bounded) return 0;
  return plan.code.size() == plan.forms.size() ? static_cast<int64_t>(thread_scratch_bytes(plan, entry, largest_sizes(plan))) : 0;
}

EntryMemory entry_memory(const StepPlan& plan, const PlanEntry& entry) {
  EntryMemory memory;
  memory.name = entry.name;
  memory.arena_bytes = entry.arena_bytes;
  memory.scratch_bytes = most_scratch(plan, entry);
  for (const Buffer& buffer : entry.buffers)
    if (buffer.space == Space::Input) memory.input_bytes += most_elements(plan, buffer.elements) * static_cast<int64_t>(size_bytes(buffer.dtype));
  BufferLives found = arena_lives(entry);
  memory.peak = live_bytes_peak(found);
  const std::vector<FirstUses> uses = first_uses(plan, entry, found.moments);
  std::map<std::string, KeptLayer> layers;
  for (const BufferLife& life : found.lives) {
    const auto buffer = static_cast<size_t>(life.buffer);
    ArenaValue value{life, entry.buffers[buffer].offset, entry.buffers[buffer].label, "", Phase::None, std::max(uses[buffer].written, 0), uses[buffer].is_kept, false};
    if (uses[buffer].written >= 0) {
      const Instruction& writer = *found.moments[static_cast<size_t>(uses[buffer].written)].instruction;
      value.scope = writer.scope, value.phase = writer.phase;
    }
    value.is_output = std::any_of(entry.outputs.begin(), entry.outputs.end(), [&](const PlanValue& output) { return output.view.buffer == life.buffer; });
    if (value.is_kept) {
      KeptLayer& layer = layers[value.scope];
      layer.scope = value.scope, layer.bytes += life.bytes, ++layer.values;
      memory.kept_bytes += life.bytes;
    }
    memory.used_bytes = std::max(memory.used_bytes, value.offset + arena_room(life.bytes));
    memory.values.push_back(std::move(value));
  }
  std::stable_sort(memory.values.begin(), memory.values.end(), [](const ArenaValue& a, const ArenaValue& b) { return a.life.first < b.life.first; });
  for (auto& [scope, layer] : layers) memory.kept.push_back(std::move(layer));
  std::stable_sort(memory.kept.begin(), memory.kept.end(), [](const KeptLayer& a, const KeptLayer& b) { return a.bytes > b.bytes; });
  memory.moments = std::move(found.moments);
  return memory;
}

struct KindText {
  std::string operator()(const FormCall& call) const { return "form " + std::to_string(call.form); }
  std::string operator()(const MatMulCall&) const { return "matmul"; }
  std::string operator()(const ConvolutionCall&) const { return "convolution"; }
  std::string operator()(const AttentionCall&) const { return "attention"; }
  std::string operator()(const ScatterCall&) const { return "scatter"; }
  std::string operator()(const PoolCall&) const { return "pool"; }
  std::string operator()(const ScanCall&) const { return "scan"; }
  std::string operator()(const EvaluateCall&) const { return "evaluate"; }
  std::string operator()(const CollectiveCall&) const { return "collective"; }
  std::string operator()(const Repeat&) const { return "loop"; }
};

}  // namespace

std::string kind_text(const InstructionOp& op) { return std::visit(KindText(), op); }

const Instruction& instruction_at(const PlanEntry& entry, const std::vector<int>& at) {
  const std::vector<Instruction>* body = &entry.instructions;
  const Instruction* found = nullptr;
  for (const int index : at) {
    found = &body->at(static_cast<size_t>(index));
    if (const auto* repeat = std::get_if<Repeat>(&found->op)) body = &repeat->body;
  }
  SG_CHECK(found != nullptr, "a place of an instruction is empty");
  return *found;
}

std::string place_text(const std::vector<int>& at) {
  std::string text;
  for (const int index : at) text += (text.empty() ? "" : ".") + std::to_string(index);
  return text;
}

MemoryUse memory_use(const StepPlan& plan) {
  MemoryUse use;
  std::map<RoleKind, int64_t> states;
  for (const PlanState& state : plan.states) states[state.role] += most_elements(plan, element_count(state.sizes)) * static_cast<int64_t>(size_bytes(state.dtype));
  use.states.assign(states.begin(), states.end());
  for (const Literal& constant : plan.constants) use.constant_bytes += static_cast<int64_t>(constant.byte_count());
  for (const PlanEntry& entry : plan.entries) use.entries.push_back(entry_memory(plan, entry));
  return use;
}

}  // namespace stepgraph
