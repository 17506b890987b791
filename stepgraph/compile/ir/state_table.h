// SPDX-License-Identifier: Apache-2.0
// The tensors of a module that live from step to step.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stepgraph/program/role.h"
#include "stepgraph/tensor/tensor_type.h"

namespace stepgraph {

/// Inputs with the role of a state and outputs that replace one refer to it by name.
struct StateInfo {
  std::string name;
  RoleKind role = RoleKind::Parameter;
  TensorType type;               ///< that of the inputs: this place's own part at Local
  std::optional<Sharding> wish;  ///< the layout that the user wrote: of the state in all entries, and of what replaces it
};

/// In the order in which they were entered; names are looked up in logarithmic time.
class StateTable {
 public:
  /// The state of that name, entered with this type and without a wish unless it is there.
  StateInfo& enter(const Role& role, const TensorType& type);
  const StateInfo* find(std::string_view name) const;
  StateInfo* find(std::string_view name);
  void keep_if(const std::function<bool(const StateInfo&)>& wanted);

  size_t size() const { return states_.size(); }
  auto begin() { return states_.begin(); }
  auto end() { return states_.end(); }
  auto begin() const { return states_.begin(); }
  auto end() const { return states_.end(); }

 private:
  std::vector<StateInfo> states_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace stepgraph
