// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/state_table.h"

#include <utility>

namespace stepgraph {

StateInfo& StateTable::enter(const Role& role, const TensorType& type) {
  const auto [found, added] = index_.try_emplace(role.name, states_.size());
  if (added) states_.push_back({role.name, role.kind, type, {}});
  return states_[found->second];
}

const StateInfo* StateTable::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &states_[found->second];
}
StateInfo* StateTable::find(std::string_view name) { return const_cast<StateInfo*>(std::as_const(*this).find(name)); }

void StateTable::keep_if(const std::function<bool(const StateInfo&)>& wanted) {
  std::erase_if(states_, [&](const StateInfo& state) { return !wanted(state); });
  index_.clear();
  for (size_t i = 0; i < states_.size(); ++i) index_.emplace(states_[i].name, i);
}

}  // namespace stepgraph
