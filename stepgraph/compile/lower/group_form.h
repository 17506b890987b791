// SPDX-License-Identifier: Apache-2.0
// The form of a group of nodes: their expressions, where they read memory, and what is stored of them.
#pragma once
#include <functional>
#include <span>
#include <string>
#include "stepgraph/compile/lower/groups.h"

namespace stepgraph {

struct GroupFormRequest {
  const Graph& graph;
  const Group& group;
  std::span<const ValueId> stores;         ///< what members make and others read
  std::function<bool(ValueId)> is_stored;  ///< of a view
  LeafStrides strides;
  std::function<int(ValueId)> operand;  ///< the number of a value in memory among the form's operands, which it adds
};
/// Returns a name for people: "add mul reduce_sum".
std::string build_group(const GroupFormRequest& request, FormBuilder& form);

}  // namespace stepgraph
