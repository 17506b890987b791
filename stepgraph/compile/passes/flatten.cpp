// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/flatten.h"

#include <utility>

#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {
namespace {

/// Of a node in a called graph, whose scopes are paths from that of the call.
Provenance inside_call(const Node& node, const Provenance& around) {
  Provenance result = Provenance::of(node, around);
  if (!around.scope.empty() && !node.scope.empty()) {
    result.scope = around.scope;
    result.scope.append(1, '.').append(node.scope);
  }
  return result;
}

/// Builds the flat graphs of a module, each once.
class Flattener {
 public:
  explicit Flattener(const Module& source) : source_(source), flat_ids_(source.graphs.size()) {
    flat_.name = source.name;
    flat_.stage = source.stage;
    flat_.symbols = source.symbols;
    flat_.mesh = source.mesh;
    flat_.states = source.states;
  }

  Module run() {
    for (const Entry& entry : source_.entries) flat_.entries.push_back({entry.name, flat_graph(entry.graph)});
    return prune_graphs(std::move(flat_));
  }

 private:
  /// Of an entry or a body.
  GraphId flat_graph(GraphId id) {
    if (flat_ids_[at(id)].index >= 0) return flat_ids_[at(id)];
    const Graph& graph = source_.graph(id);
    const GraphId flat_id = flat_.add_graph(graph.name);
    flat_ids_[at(id)] = flat_id;
    flat_.graph(flat_id).composite = graph.composite;
    Builder builder(flat_, flat_id);
    std::vector<Value> inputs;
    inputs.reserve(graph.inputs.size());
    for (const GraphInput& input : graph.inputs) inputs.push_back(builder.input(graph.type(input.value), input.role));
    const std::vector<Value> outputs = append_nodes(builder, graph, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) builder.output(outputs[i], graph.outputs[i].role);
    remove_dead_nodes(flat_.graph(flat_id));
    return flat_id;
  }

  /// The nodes of `graph` on these inputs; calls among them in their turn. Returns its outputs.
  std::vector<Value> append_nodes(Builder& builder, const Graph& graph, std::span<const Value> inputs) {
    std::vector<Value> map(graph.values.size());
    for (size_t i = 0; i < graph.inputs.size(); ++i) map[at(graph.inputs[i].value)] = inputs[i];
    const Provenance around = builder.provenance();
    std::vector<Value> operands;
    for (const Node& node : graph.nodes) {
      operands.clear();
      for (const ValueId input : node.inputs) operands.push_back(map[at(input)]);
      builder.set_provenance(inside_call(node, around));
      const std::vector<Value> results = append(builder, graph, node, operands);
      for (size_t i = 0; i < results.size(); ++i) map[at(node.results[i])] = results[i];
    }
    builder.set_provenance(around);
    std::vector<Value> outputs;
    outputs.reserve(graph.outputs.size());
    for (const GraphOutput& output : graph.outputs) outputs.push_back(map[at(output.value)]);
    return outputs;
  }

  std::vector<Value> append(Builder& builder, const Graph& graph, const Node& node, std::span<const Value> operands) {
    if (const auto* call = std::get_if<Call>(&node.op)) return append_nodes(builder, source_.graph(call->graph), operands);
    std::vector<TensorType> types;
    types.reserve(node.results.size());
    for (const ValueId result : node.results) types.push_back(graph.type(result));
    if (!is_control(node.op)) return builder.append(node.op, operands, std::move(types));
    for (const GraphId body : called_graphs(node.op)) flat_graph(body);
    return builder.append(renumber_graphs(node.op, flat_ids_), operands, std::move(types));
  }

  const Module& source_;
  Module flat_;
  std::vector<GraphId> flat_ids_;
};

}  // namespace

Module flatten(Module module) { return Flattener(module).run(); }

}  // namespace stepgraph
