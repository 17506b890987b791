// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/step_plan.h"

#include <algorithm>

namespace stepgraph {

std::string form_symbol(int index) { return "s" + std::to_string(index); }

const PlanEntry* StepPlan::find_entry(std::string_view name) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const PlanEntry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace stepgraph
