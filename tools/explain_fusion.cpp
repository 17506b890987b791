// SPDX-License-Identifier: Apache-2.0
// stepgraph explain fusion
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "stepgraph/backend/memory_use.h"
#include "tools/explain.h"
#include "tools/json_line.h"
#include "tools/planned_model.h"
#include "tools/progress.h"

namespace stepgraph {
namespace {

using FusionJson = nlohmann::ordered_json;

std::string place_of(const LoweredOp& op) { return op.place.file.empty() ? "" : fmt::format("{}:{}", op.place.file, op.place.line); }

std::string layer_of(const LoweredOp& op) { return op.scope + (op.scope.empty() ? "" : "/") + op.op; }

/// "multiply add 3 x subtract": equal neighbours once.
std::string ops_text(const std::vector<LoweredOp>& ops) {
  std::string text;
  for (size_t i = 0; i < ops.size();) {
    size_t same = i;
    while (same < ops.size() && ops[same].op == ops[i].op) ++same;
    text += (text.empty() ? "" : " ") + (same - i > 1 ? fmt::format("{} x ", same - i) : "") + ops[i].op;
    i = same;
  }
  return text;
}

/// The layer of the last operation that has one, and how many others are in it.
std::string layers_text(const LoweredUnit& unit) {
  std::set<std::string> scopes;
  std::string last;
  for (const LoweredOp& op : unit.ops)
    if (!op.scope.empty()) scopes.insert(last = op.scope);
  return scopes.size() <= 1 ? last : fmt::format("{} and {} more", cut(last, 20), scopes.size() - 1);
}

std::string phases_text(const LoweredUnit& unit) {
  std::set<Phase> phases;
  for (const LoweredOp& op : unit.ops)
    if (op.phase != Phase::None) phases.insert(op.phase);
  std::string text;
  for (const Phase phase : phases) text += (text.empty() ? "" : "+") + std::string(name(phase));
  return text.empty() ? "-" : text;
}

struct FusionSums {
  int64_t units = 0, kernels_units = 0, ops = 0, moved = 0, apart = 0;
  void add(const LoweredUnit& unit, bool is_form) {
    ++units, kernels_units += is_form, ops += static_cast<int64_t>(unit.ops.size());
    moved += unit.read + unit.written, apart += unit.apart;
  }
};

std::string saved_text(int64_t moved, int64_t apart) {
  return apart <= 0 ? "nothing is moved" : fmt::format("{} less, {:.0f} %", bytes_text(static_cast<double>(apart - moved)), 100.0 * static_cast<double>(apart - moved) / static_cast<double>(apart));
}

void print_units(const ExplainRequest& request, const LoweredEntry& entry, const PlanEntry& plan) {
  std::vector<const LoweredUnit*> units;
  for (const LoweredUnit& unit : entry.units) units.push_back(&unit);
  // The largest savings, in the order of the program.
  std::vector<const LoweredUnit*> chosen = units;
  std::stable_sort(chosen.begin(), chosen.end(), [](const LoweredUnit* a, const LoweredUnit* b) { return a->apart - a->read - a->written > b->apart - b->read - b->written; });
  chosen.resize(rows_of(request, chosen.size()));
  std::sort(chosen.begin(), chosen.end(), [](const LoweredUnit* a, const LoweredUnit* b) { return a->at < b->at; });
  fmt::print("instructions, those that save most:\n  {:>11}  {:<11} {:>4} {:>9} {:>9} {:>9}  {:<16} {:<28} operations\n", "instruction", "kind", "ops", "reads", "writes", "saves", "phase", "layer");
  for (const LoweredUnit* unit : chosen) {
    const Instruction& instruction = instruction_at(plan, unit->at);
    fmt::print("  {:>11}  {:<11} {:>4} {:>9} {:>9} {:>9}  {:<16} {:<28} {}\n", place_text(unit->at), kind_text(instruction.op), unit->ops.size(), bytes_text(static_cast<double>(unit->read)),
               bytes_text(static_cast<double>(unit->written)), bytes_text(static_cast<double>(unit->apart - unit->read - unit->written)), phases_text(*unit),
               cut(layers_text(*unit), 28), cut(ops_text(unit->ops), 50));
  }
  print_rest(chosen.size(), units.size());
}

void print_phases(const LoweredEntry& entry, const PlanEntry& plan) {
  std::map<std::string, FusionSums> phases;
  for (const LoweredUnit& unit : entry.units) phases[phases_text(unit)].add(unit, std::holds_alternative<FormCall>(instruction_at(plan, unit.at).op));
  fmt::print("by phase:\n  {:<16} {:>12} {:>8} {:>11} {:>14} {:>14}\n", "phase", "instructions", "kernels", "operations", "moves", "one an op");
  for (const auto& [phase, sums] : phases)
    fmt::print("  {:<16} {:>12} {:>8} {:>11} {:>14} {:>14}\n", phase, sums.units, sums.kernels_units, sums.ops, bytes_text(static_cast<double>(sums.moved)),
               bytes_text(static_cast<double>(sums.apart)));
}

void print_stored(const ExplainRequest& request, const LoweredEntry& entry) {
  if (entry.stored.empty()) return fmt::print("not fused: nothing, but for what calls read and write\n");
  std::map<std::string, std::pair<int64_t, int64_t>> reasons;
  for (const StoredValue& value : entry.stored) ++reasons[value.why].first, reasons[value.why].second += value.bytes;
  fmt::print("not fused, stored by one kernel and read by another:\n");
  for (const auto& [why, sums] : reasons) fmt::print("  {:>5} values, {:>9}: {}\n", sums.first, bytes_text(static_cast<double>(sums.second)), why);
  std::vector<const StoredValue*> rows;
  for (const StoredValue& value : entry.stored) rows.push_back(&value);
  std::stable_sort(rows.begin(), rows.end(), [](const StoredValue* a, const StoredValue* b) { return a->bytes > b->bytes; });
  const size_t shown = rows_of(request, rows.size());
  fmt::print("  {:>9}  {:<44} {:<44} why\n", "bytes", "made by", "read by");
  for (size_t i = 0; i < shown; ++i)
    fmt::print("  {:>9}  {:<44} {:<44} {}\n", bytes_text(static_cast<double>(rows[i]->bytes)), cut(layer_of(rows[i]->from), 44), cut(layer_of(rows[i]->to), 44), rows[i]->why);
  print_rest(shown, rows.size());
}

FusionJson op_json(const LoweredOp& op) {
  FusionJson json{{"op", op.op}, {"layer", op.scope}, {"phase", name(op.phase)}};
  if (!op.place.file.empty()) json["place"] = place_of(op);
  return json;
}

FusionJson entry_json(const LoweredEntry& entry, const PlanEntry& plan) {
  FusionJson json{{"entry", entry.name}, {"nodes", entry.nodes}, {"instructions", FusionJson::array()}, {"not_fused", FusionJson::array()}};
  for (const LoweredUnit& unit : entry.units) {
    FusionJson row{{"at", place_text(unit.at)}, {"kind", kind_text(instruction_at(plan, unit.at).op)}, {"read", unit.read}, {"written", unit.written}, {"apart", unit.apart}, {"ops", FusionJson::array()}};
    for (const LoweredOp& op : unit.ops) row["ops"].push_back(op_json(op));
    json["instructions"].push_back(std::move(row));
  }
  for (const StoredValue& value : entry.stored) json["not_fused"].push_back({{"from", op_json(value.from)}, {"to", op_json(value.to)}, {"bytes", value.bytes}, {"why", value.why}});
  return json;
}

}  // namespace

void explain_fusion(const ExplainRequest& request) {
  PlanReport told;
  const StepPlan plan = PlannedModel(request.job).plan(&told);
  const LowerReport& report = told.lower;
  std::vector<std::string> names;
  for (const LoweredEntry& entry : report) names.push_back(entry.name);
  check_entry(request, names);
  FusionJson all = FusionJson::array();
  for (const LoweredEntry& entry : report) {
    if (!request.entry.empty() && entry.name != request.entry) continue;
    const PlanEntry& planned = *plan.find_entry(entry.name);
    if (request.json) {
      all.push_back(entry_json(entry, planned));
      continue;
    }
    FusionSums sums;
    std::set<int> forms;
    for (const LoweredUnit& unit : entry.units) {
      const auto* form = std::get_if<FormCall>(&instruction_at(planned, unit.at).op);
      sums.add(unit, form != nullptr);
      if (form != nullptr) forms.insert(form->form);
    }
    fmt::print("entry {}: {} operations in {} instructions, {} of them of {} kernels, the others calls\n", entry.name, sums.ops, sums.units, sums.kernels_units, forms.size());
    fmt::print("memory traffic {}; a kernel an operation {} ({})\n", bytes_text(static_cast<double>(sums.moved)), bytes_text(static_cast<double>(sums.apart)), saved_text(sums.moved, sums.apart));
    print_phases(entry, planned);
    print_units(request, entry, planned);
    print_stored(request, entry);
    fmt::print("\n");
  }
  if (request.json) std::puts(json_line({{"entries", std::move(all)}}).c_str());
}

}  // namespace stepgraph
