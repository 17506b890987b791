// SPDX-License-Identifier: Apache-2.0
// The body of a MapTensors as a form over the elements of one tensor; what some of its tensors read and write.
#pragma once
#include <functional>
#include <optional>
#include <span>
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

/// What a MapTensors reads for some of its tensors: the shared scalars, then a table after another.
std::vector<ValueId> operands_of_tensors(const Node& node, std::span<const size_t> tensors);
/// For each output of a MapTensors the table that it overwrites, or -1, for some of its tensors: all alike. `state_read` and `replaces`: the state that an input is and
/// a result replaces, or -1. Nothing if a result replaces none, or a state is read in another way than where its new value is written.
using StateOf = std::function<int(ValueId)>;
std::optional<std::vector<int>> tables_in_place(const Node& node, std::span<const size_t> tensors, const StateOf& state_read, const StateOf& replaces);

/// Whether code generation can do a node that has an expression.
bool can_emit_node(const Graph& graph, const Node& node);

}  // namespace stepgraph
