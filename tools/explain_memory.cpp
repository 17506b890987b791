// SPDX-License-Identifier: Apache-2.0
// stepgraph explain memory
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "stepgraph/backend/memory_use.h"
#include "stepgraph/base/file.h"
#include "tools/explain.h"
#include "tools/json_line.h"
#include "tools/memory_map.h"
#include "tools/planned_model.h"
#include "tools/progress.h"

namespace stepgraph {
namespace {

using MemoryJson = nlohmann::ordered_json;

std::string said_bytes(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

bool lives_at(const ArenaValue& value, int moment) { return value.life.first <= moment && moment <= value.life.last; }

std::vector<const ArenaValue*> at_peak(const EntryMemory& memory) {
  std::vector<const ArenaValue*> values;
  for (const ArenaValue& value : memory.values)
    if (lives_at(value, memory.peak.moment)) values.push_back(&value);
  std::stable_sort(values.begin(), values.end(), [](const ArenaValue* a, const ArenaValue* b) { return a->life.bytes > b->life.bytes; });
  return values;
}

std::string moment_text(const EntryMemory& memory, int moment) {
  if (moment >= static_cast<int>(memory.moments.size())) return "the end";
  const PlanMoment& found = memory.moments[static_cast<size_t>(moment)];
  const Instruction& instruction = *found.instruction;
  return fmt::format("instruction {} ({}{}{}{})", place_text(found.at), name(instruction.phase), instruction.phase == Phase::None ? "" : ", ",
                     instruction.scope.empty() ? "" : instruction.scope + ", ", cut(instruction.label, 40));
}

std::string place_at(const EntryMemory& memory, int moment) {
  return moment >= static_cast<int>(memory.moments.size()) ? "end" : place_text(memory.moments[static_cast<size_t>(moment)].at);
}

void print_memory(const ExplainRequest& request, const EntryMemory& memory, int threads) {
  fmt::print("entry {}: arena {} in use, {} with whole pages; at least {} live at once ({:.1f} %)\n  the peak is at {}\n", memory.name, said_bytes(memory.used_bytes), said_bytes(memory.arena_bytes),
             said_bytes(memory.peak.bytes), memory.used_bytes == 0 ? 100.0 : 100.0 * static_cast<double>(memory.peak.bytes) / static_cast<double>(memory.used_bytes),
             moment_text(memory, memory.peak.moment));
  fmt::print("  batch {} (the caller's), scratch of kernels and library calls {} a thread, {} thread{}\n", said_bytes(memory.input_bytes), said_bytes(memory.scratch_bytes), threads, threads == 1 ? "" : "s");
  const std::vector<const ArenaValue*> live = at_peak(memory);
  if (!live.empty()) {
    fmt::print("alive at the peak:\n  {:>9}  {:<10} {:<36} {:<28} {:>9}  {:>9}\n", "bytes", "phase", "layer", "value", "from", "to");
    const size_t shown = rows_of(request, live.size());
    for (size_t i = 0; i < shown; ++i) {
      const ArenaValue& value = *live[i];
      fmt::print("  {:>9}  {:<10} {:<36} {:<28} {:>9}  {:>9}\n", said_bytes(value.life.bytes), name(value.phase), cut(value.scope, 36), cut(value.label, 28), place_at(memory, value.life.first),
                 place_at(memory, value.life.last));
    }
    print_rest(shown, live.size());
  }
  if (memory.kept.empty()) return;
  fmt::print("forward keeps {} for backward:\n  {:>9}  {:>6}  layer\n", said_bytes(memory.kept_bytes), "bytes", "values");
  const size_t shown = rows_of(request, memory.kept.size());
  for (size_t i = 0; i < shown; ++i)
    fmt::print("  {:>9}  {:>6}  {}\n", said_bytes(memory.kept[i].bytes), memory.kept[i].values, memory.kept[i].scope.empty() ? "-" : memory.kept[i].scope);
  print_rest(shown, memory.kept.size());
}

MemoryJson memory_json(const EntryMemory& memory) {
  MemoryJson json{{"entry", memory.name}, {"arena_bytes", memory.arena_bytes}, {"used_bytes", memory.used_bytes}, {"lower_bound_bytes", memory.peak.bytes}, {"peak", place_at(memory, memory.peak.moment)},
                  {"input_bytes", memory.input_bytes}, {"scratch_bytes", memory.scratch_bytes}, {"kept_bytes", memory.kept_bytes}, {"values", MemoryJson::array()}, {"kept", MemoryJson::array()}};
  for (const ArenaValue& value : memory.values)
    json["values"].push_back({{"value", value.label}, {"layer", value.scope}, {"phase", name(value.phase)}, {"bytes", value.life.bytes}, {"offset", value.offset},
                              {"from", place_at(memory, value.life.first)}, {"to", place_at(memory, value.life.last)}, {"at_peak", lives_at(value, memory.peak.moment)}, {"kept", value.is_kept}});
  for (const KeptLayer& layer : memory.kept) json["kept"].push_back({{"layer", layer.scope}, {"bytes", layer.bytes}, {"values", layer.values}});
  return json;
}

/// The entry that is drawn: that which was asked for, else the step, else the last.
const EntryMemory& drawn_entry(const ExplainRequest& request, const MemoryUse& use) {
  const std::string wanted = request.entry.empty() ? "step" : request.entry;
  const auto found = std::find_if(use.entries.begin(), use.entries.end(), [&](const EntryMemory& memory) { return memory.name == wanted; });
  return found == use.entries.end() ? use.entries.back() : *found;
}

}  // namespace

void explain_memory(const ExplainRequest& request) {
  if (!request.map.empty()) check_writable(request.map);
  const StepPlan plan = PlannedModel(request.job).plan();
  const MemoryUse use = memory_use(plan);
  std::vector<std::string> names;
  for (const EntryMemory& memory : use.entries) names.push_back(memory.name);
  check_entry(request, names);
  MemoryJson states = MemoryJson::object(), entries = MemoryJson::array();
  int64_t state_bytes = 0;
  std::string roles;
  for (const auto& [role, bytes] : use.states) {
    states[std::string(name(role))] = bytes;
    state_bytes += bytes;
    roles += fmt::format("{}{} {}", roles.empty() ? "" : ", ", name(role), said_bytes(bytes));
  }
  if (!request.json) fmt::print("states {}{}; constants {}\n", said_bytes(state_bytes), roles.empty() ? "" : " (" + roles + ")", said_bytes(use.constant_bytes));
  for (const EntryMemory& memory : use.entries) {
    if (!request.entry.empty() && memory.name != request.entry) continue;
    if (request.json) entries.push_back(memory_json(memory));
    else print_memory(request, memory, plan.target.threads);
  }
  if (!request.map.empty()) write_file(request.map, memory_map_svg(drawn_entry(request, use), request.job.model.name));
  if (request.json)
    std::puts(json_line({{"states", std::move(states)}, {"constant_bytes", use.constant_bytes}, {"threads", plan.target.threads}, {"entries", std::move(entries)}}).c_str());
  else if (!request.map.empty()) fmt::print("map     {} (entry {})\n", request.map, drawn_entry(request, use).name);
}

}  // namespace stepgraph
