// SPDX-License-Identifier: Apache-2.0
// One entry of a flat module as an entry of a plan.
#pragma once
#include <unordered_map>
#include <vector>
#include "stepgraph/compile/lower/lower.h"

namespace stepgraph {

/// Forms of a plan, each once.
class FormTable {
 public:
  explicit FormTable(std::vector<Form>& forms) : forms_(forms) {}
  int add(Form form);

 private:
  std::vector<Form>& forms_;
  std::unordered_multimap<uint64_t, int> known_;  // looked up only
};

/// `report` may be null.
PlanEntry lower_entry(const Module& module, const Entry& entry, const LowerOptions& options, StepPlan& plan, FormTable& forms, LoweredEntry* report);

}  // namespace stepgraph
