// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/map_form.h"

#include <algorithm>
#include <functional>
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

}  // namespace stepgraph
