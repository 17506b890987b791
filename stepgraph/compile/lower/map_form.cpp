// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/map_form.h"

#include <algorithm>
#include <map>
#include <utility>

#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/lower/element_reader.h"

namespace stepgraph {

bool can_emit_node(const Graph& graph, const Node& node) {
  if (op_info(node.op).element == nullptr) return false;
  if (const auto* unary = std::get_if<Unary>(&node.op)) return can_emit(unary->kind, graph.type(node.inputs[0]).dtype);
  if (const auto* binary = std::get_if<Binary>(&node.op)) return can_emit(binary->kind, graph.type(node.inputs[0]).dtype);
  if (const auto* convert = std::get_if<Convert>(&node.op)) return can_convert(graph.type(node.inputs[0]).dtype, convert->dtype);
  return true;
}

std::optional<MapForm> map_form(const Module& module, const MapTensors& map, const std::vector<int>& in_place) {
  const Graph& body = module.graph(map.body);
  for (const Node& node : body.nodes)
    if (!can_emit_node(body, node)) return std::nullopt;
  FormBuilder builder;
  const int element = builder.add_factor(Dim::symbol(map_elements_symbol));
  for (const GraphInput& input : body.inputs) builder.operands.push_back({body.type(input.value).dtype, false, false});
  for (const GraphOutput& output : body.outputs) builder.operands.push_back({body.type(output.value).dtype, false, false});

  std::vector<int> expr_of(body.values.size(), -1);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    const ValueId value = body.inputs[i].value;
    const Affine place = static_cast<int64_t>(i) < map.tables ? affine(element) : Affine{};
    expr_of[at(value)] = builder.add(LoadExpr{static_cast<int>(i), place, {}, {}}, {}, body.type(value).dtype);
  }
  ElementReader reader(body, builder, [](ValueId) { return false; }, [&](const LeafElement& leaf) { return expr_of[at(leaf.value)]; });
  for (const Node& node : body.nodes) {
    if (op_info(node.op).element_kind == ElementKind::View) continue;
    for (size_t result = 0; result < node.results.size(); ++result) expr_of[at(node.results[result])] = reader.compute(node, result, {}, {});
  }
  const size_t reduced_begin = body.outputs.size() - static_cast<size_t>(map.reduced);
  for (size_t o = 0; o < body.outputs.size(); ++o) {
    int value = reader.read(body.outputs[o].value, {});
    const int own = static_cast<int>(body.inputs.size() + o);
    if (o >= reduced_begin) {
      value = builder.reduce(map.reduce, value, {element});
      builder.stores.push_back({own, {}, value});
    } else {
      builder.stores.push_back({in_place[o] >= 0 ? in_place[o] : own, affine(element), value});
    }
  }
  if (reader.failure().any()) return std::nullopt;
  MapForm result;
  const std::vector<int> order = {element};
  result.form = builder.finish(order, result.sizes, result.operand_of);
  return result;
}

std::vector<ValueId> operands_of_tensors(const Node& node, std::span<const size_t> tensors) {
  const auto& map = std::get<MapTensors>(node.op);
  const auto all = static_cast<size_t>(map.tensors), tables = static_cast<size_t>(map.tables);
  std::vector<ValueId> operands(node.inputs.begin() + static_cast<std::ptrdiff_t>(tables * all), node.inputs.end());
  for (size_t table = 0; table < tables; ++table)
    for (const size_t t : tensors) operands.push_back(node.inputs[table * all + t]);
  return operands;
}

std::optional<std::vector<int>> tables_in_place(const Node& node, std::span<const size_t> tensors, const StateOf& state_read, const StateOf& replaces) {
  const auto& map = std::get<MapTensors>(node.op);
  const auto all = static_cast<size_t>(map.tensors), tables = static_cast<size_t>(map.tables), reduced = static_cast<size_t>(map.reduced);
  const size_t outputs = (node.results.size() - reduced) / all;
  constexpr size_t none = SIZE_MAX;
  std::map<int, std::pair<size_t, size_t>> table_of;  // by state: table and tensor; none for a scalar, or what is read twice
  const auto note = [&](size_t input, size_t table, size_t tensor) {
    const int state = state_read(node.inputs[input]);
    if (state >= 0 && !table_of.emplace(state, std::pair{table, tensor}).second) table_of[state] = {none, 0};
  };
  for (size_t table = 0; table < tables; ++table)
    for (const size_t t : tensors) note(table * all + t, table, t);
  for (size_t i = tables * all; i < node.inputs.size(); ++i) note(i, none, 0);
  std::vector<int> in_place(outputs + reduced, -1);
  for (size_t o = 0; o < outputs; ++o) {
    for (const size_t t : tensors) {
      const int state = replaces(node.results[o * all + t]);
      if (state < 0) return std::nullopt;
      const auto found = table_of.find(state);
      if (found != table_of.end() && (found->second.first == none || found->second.second != t)) return std::nullopt;
      const int table = found == table_of.end() ? -1 : static_cast<int>(found->second.first);
      if (t == tensors[0]) in_place[o] = table;
      else if (in_place[o] != table) return std::nullopt;
    }
  }
  return in_place;
}

}  // namespace stepgraph
