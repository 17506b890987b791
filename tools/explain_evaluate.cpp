// SPDX-License-Identifier: Apache-2.0
// stepgraph explain evaluate
#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "stepgraph/backend/memory_use.h"
#include "tools/explain.h"
#include "tools/json_line.h"
#include "tools/planned_model.h"

namespace stepgraph {
namespace {

struct EvaluatedOps {
  int64_t count = 0;
  std::set<std::string> scopes;
  std::string first;  ///< place of the first
};
/// By operation, phase and why.
using EvaluatedRows = std::map<std::tuple<std::string, Phase, std::string>, EvaluatedOps>;

EvaluatedRows evaluated_in(const PlanEntry& entry) {
  EvaluatedRows rows;
  for (const PlanMoment& moment : arena_lives(entry).moments) {
    const auto* call = std::get_if<EvaluateCall>(&moment.instruction->op);
    if (call == nullptr) continue;
    EvaluatedOps& row = rows[{moment.instruction->label, moment.instruction->phase, call->why}];
    if (row.count++ == 0) row.first = place_text(moment.at);
    row.scopes.insert(moment.instruction->scope);
  }
  return rows;
}

std::string scopes_text(const std::set<std::string>& scopes) {
  std::string text;
  for (const std::string& scope : scopes) text += (text.empty() ? "" : ", ") + (scope.empty() ? "-" : scope);
  return text;
}

}  // namespace

void explain_evaluate(const ExplainRequest& request) {
  const StepPlan plan = PlannedModel(request.job).plan();
  std::vector<std::string> names;
  for (const PlanEntry& entry : plan.entries) names.push_back(entry.name);
  check_entry(request, names);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const PlanEntry& entry : plan.entries) {
    if (!request.entry.empty() && entry.name != request.entry) continue;
    const EvaluatedRows rows = evaluated_in(entry);
    int64_t count = 0;
    for (const auto& [key, row] : rows) count += row.count;
    if (request.json) {
      nlohmann::ordered_json json{{"entry", entry.name}, {"evaluated", count}, {"rows", nlohmann::ordered_json::array()}};
      for (const auto& [key, row] : rows)
        json["rows"].push_back({{"op", std::get<0>(key)}, {"phase", name(std::get<1>(key))}, {"why", std::get<2>(key)}, {"count", row.count}, {"first", row.first}, {"layers", row.scopes}});
      all.push_back(std::move(json));
      continue;
    }
    if (rows.empty()) {
      fmt::print("entry {}: every operation has a kernel or a call\n", entry.name);
      continue;
    }
    fmt::print("entry {}: {} of {} instructions run in the interpreter, one thread\n  {:>5}  {:<20} {:<10} {:>11}  {:<46} layers\n", entry.name, count, entry.instructions.size(), "count", "operation",
               "phase", "first", "why");
    for (const auto& [key, row] : rows)
      fmt::print("  {:>5}  {:<20} {:<10} {:>11}  {:<46} {}\n", row.count, cut(std::get<0>(key), 20), name(std::get<1>(key)), row.first, cut(std::get<2>(key), 46), cut(scopes_text(row.scopes), 54));
  }
  if (request.json) std::puts(json_line({{"entries", std::move(all)}}).c_str());
}

}  // namespace stepgraph
