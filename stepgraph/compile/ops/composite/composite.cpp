// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/composite/composite.h"

#include <algorithm>

namespace stepgraph {
namespace {

GraphId build(Module& module, const std::string& tag, const std::vector<TensorType>& types, const Builder& outer, const CompositeBody& body) {
  const GraphId id = module.add_graph(tag);
  Builder builder(module, id);
  builder.set_place(outer.place());
  std::vector<Value> inputs;
  for (const TensorType& type : types) inputs.push_back(builder.input(type));
  for (const Value& result : body(builder, inputs)) builder.output(result);
  remove_dead_nodes(module.graph(id));
  return id;
}

}  // namespace

GraphId unite_graph(Module& module, GraphId id) {
  Graph& graph = module.graph(id);
  const std::string base = graph.name;
  int64_t same_name = 0;
  for (int32_t i = 0; i < id.index; ++i) {
    const Graph& other = module.graphs[static_cast<size_t>(i)];
    if (other.composite != graph.composite) continue;
    if (static_cast<size_t>(id.index) + 1 == module.graphs.size() && equal_graphs(other, graph)) {
      module.graphs.pop_back();
      return {i};
    }
    if (!graph.composite.empty() || other.name == base || other.name.starts_with(base + ".")) ++same_name;
  }
  if (same_name > 0) graph.name += "." + std::to_string(same_name + 1);
  return id;
}

bool equal_graphs(const Graph& a, const Graph& b) {
  return a.gradient == b.gradient && equal_graphs(a, b, [](const Op& one, const Op& other) { return one == other; });
}

bool equal_graphs(const Graph& a, const Graph& b, const std::function<bool(const Op& a, const Op& b)>& same_op) {
  if (a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size() || a.nodes.size() != b.nodes.size() || a.values.size() != b.values.size())
    return false;
  for (size_t i = 0; i < a.values.size(); ++i)
    if (!(a.values[i].type == b.values[i].type)) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i)
    if (a.inputs[i].value != b.inputs[i].value || !(a.inputs[i].role == b.inputs[i].role)) return false;
  for (size_t i = 0; i < a.outputs.size(); ++i)
    if (a.outputs[i].value != b.outputs[i].value || !(a.outputs[i].role == b.outputs[i].role)) return false;
  for (size_t i = 0; i < a.nodes.size(); ++i)
    if (a.nodes[i].inputs != b.nodes[i].inputs || a.nodes[i].results != b.nodes[i].results || !same_op(a.nodes[i].op, b.nodes[i].op)) return false;
  return true;
}

std::vector<Value> composite(Builder& builder, const std::string& tag, std::span<const Value> inputs, const CompositeBody& body,
                             const CompositeBody& gradient) {
  Module& module = builder.module();
  std::vector<TensorType> types;
  for (const Value& input : inputs) {
    if (input.builder != &builder)
      throw UserError(tag + ": an operand belongs to another graph; pass it in as an argument of the layer", builder.place());
    types.push_back(input.type());
  }
  GraphId id = build(module, tag, types, builder, body);
  std::optional<GraphId> gradient_id;
  if (gradient) {
    std::vector<TensorType> gradient_types = types;
    for (int pass = 0; pass < 2; ++pass)  // outputs, then their gradients
      for (const GraphOutput& output : module.graph(id).outputs) gradient_types.push_back(module.graph(id).type(output.value));
    gradient_id = build(module, tag + "_gradient", gradient_types, builder, gradient);
    module.graph(*gradient_id).composite = tag + "_gradient";
    gradient_id = unite_graph(module, *gradient_id);
  }
  module.graph(id).composite = tag;
  module.graph(id).gradient = gradient_id;
  id = unite_graph(module, id);
  return builder.emit(Call{id}, inputs);
}

}  // namespace stepgraph
