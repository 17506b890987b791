// SPDX-License-Identifier: Apache-2.0
// The body of a MapTensors as a form over the elements of one tensor.
#pragma once
#include <optional>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/ops/form_builder.h"

namespace stepgraph {

struct MapForm {
  Form form;
  std::vector<Dim> sizes;  ///< of the form's symbols, in those of the module and the one below
  /// Of each operand of the form: a table, a shared scalar behind the tables, or an output behind those.
  std::vector<int> operand_of;
};
/// The symbol of the number of elements, in MapForm::sizes.
inline constexpr const char* map_elements_symbol = "map.elements";
/// `in_place[o]`: the table that output o overwrites, or -1. Nothing if a node of the body has no expression that can be emitted.
std::optional<MapForm> map_form(const Module& module, const MapTensors& map, const std::vector<int>& in_place);

/// Whether code generation can do a node that has an expression.
bool can_emit_node(const Graph& graph, const Node& node);

}  // namespace stepgraph
