// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/expand.h"

#include <algorithm>

#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {
namespace {

/// The module without its nodes: the same graphs by id, to be filled again.
Module emptied(const Module& module) {
  Module result = module;
  for (Graph& graph : result.graphs) {
    graph.values.clear();
    graph.inputs.clear();
    graph.nodes.clear();
    graph.outputs.clear();
  }
  return result;
}

/// Rebuilds one graph; a subclass says what becomes of a node.
class Rebuild {
 public:
  Rebuild(const Module& source, GraphId id, Module& target) : source_(source), builder_(target, id) {}
  virtual ~Rebuild() = default;
  void run() {
    const Graph& graph = source_.graph(builder_.graph_id());
    std::vector<Value> map(graph.values.size());
    for (const GraphInput& input : graph.inputs) map[static_cast<size_t>(input.value.index)] = builder_.input(graph.type(input.value), input.role);
    nodes(graph, map);
    for (const GraphOutput& output : graph.outputs) builder_.output(map[static_cast<size_t>(output.value.index)], output.role);
  }

 protected:
  void nodes(const Graph& graph, std::vector<Value>& map) {
    const Phase outer = builder_.phase();  // of the call, when its graph is put in its place
    for (const Node& node : graph.nodes) {
      builder_.set_place(node.place);
      builder_.set_scope(node.scope);
      builder_.set_phase(node.phase == Phase::None ? outer : node.phase);
      std::vector<Value> inputs;
      for (ValueId input : node.inputs) inputs.push_back(map[static_cast<size_t>(input.index)]);
      const std::vector<Value> results = replace(graph, node, inputs);
      for (size_t i = 0; i < results.size(); ++i) map[static_cast<size_t>(node.results[i].index)] = results[i];
    }
    builder_.set_phase(outer);
  }
  std::vector<Value> copy(const Graph& graph, const Node& node, std::span<const Value> inputs) {
    std::vector<TensorType> types;
    for (ValueId result : node.results) types.push_back(graph.type(result));
    return builder_.append(node.op, inputs, std::move(types));
  }
  virtual std::vector<Value> replace(const Graph& graph, const Node& node, std::span<const Value> inputs) = 0;

  const Module& source_;
  Builder builder_;
};

class CallInliner : public Rebuild {
 public:
  CallInliner(const Module& source, GraphId id, Module& target, const std::function<bool(const Graph&)>& take) : Rebuild(source, id, target), take_(take) {}

 protected:
  std::vector<Value> replace(const Graph& graph, const Node& node, std::span<const Value> inputs) override {
    const auto* call = std::get_if<Call>(&node.op);
    if (call == nullptr) return copy(graph, node, inputs);
    const Graph& callee = source_.graph(call->graph);
    if (take_ && !take_(callee)) return copy(graph, node, inputs);
    std::vector<Value> map(callee.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) map[static_cast<size_t>(callee.inputs.at(i).value.index)] = inputs[i];
    nodes(callee, map);
    std::vector<Value> results;
    for (const GraphOutput& output : callee.outputs) results.push_back(map[static_cast<size_t>(output.value.index)]);
    return results;
  }

 private:
  const std::function<bool(const Graph&)>& take_;
};

class MapExpansion : public Rebuild {
 public:
  using Rebuild::Rebuild;

 protected:
  std::vector<Value> replace(const Graph& graph, const Node& node, std::span<const Value> inputs) override {
    const auto* op = std::get_if<MapTensors>(&node.op);
    if (op == nullptr) return copy(graph, node, inputs);
    const Graph& body = source_.graph(op->body);
    const size_t tensors = static_cast<size_t>(op->tensors), tables = static_cast<size_t>(op->tables), outputs = body.outputs.size();
    const size_t mapped = outputs - static_cast<size_t>(op->reduced);
    std::vector<Value> results(mapped * tensors);
    std::vector<std::vector<Value>> parts(outputs - mapped);
    for (size_t j = 0; j < tensors; ++j) {
      std::vector<std::optional<Value>> map(body.values.size());
      for (size_t i = 0; i < body.inputs.size(); ++i)
        map[static_cast<size_t>(body.inputs[i].value.index)] = i < tables ? inputs[i * tensors + j] : inputs[tables * tensors + i - tables];
      const Shape shape = graph.type(node.inputs.at(j)).shape;
      for (const Node& inner : body.nodes) run_body_node(inner, shape, map);
      for (size_t i = 0; i < outputs; ++i) {
        const Value value = broadcast_to(*map[static_cast<size_t>(body.outputs[i].value.index)], shape);
        if (i < mapped)
          results[i * tensors + j] = value;
        else
          parts[i - mapped].push_back(reshape(reduce(op->reduce, value, all_dims_of(value)), {Dim(1)}));
      }
    }
    for (size_t i = mapped; i < outputs; ++i) results.push_back(join(parts[i - mapped], op->reduce, body.type(body.outputs[i].value).dtype));
    return results;
  }

 private:
  static Dims all_dims_of(const Value& value) {
    Dims dims;
    for (int64_t d = 0; d < value.rank(); ++d) dims.push_back(d);
    return dims;
  }
  /// Reductions of the tensors, each [1], to one.
  Value join(const std::vector<Value>& parts, ReduceKind kind, DType dtype) {
    const Value all = parts.empty() ? zeros(builder_, {dtype, {Dim(0)}, {}}) : concatenate(parts, 0);
    return builder_.emit_one(Reduce{kind, {0}}, {all});
  }
  /// A scalar node on tensors; scalars among its operands are spread. What depends on shared scalars alone stays scalar.
  void run_body_node(const Node& node, const Shape& shape, std::vector<std::optional<Value>>& map) {
    std::vector<Value> operands;
    bool any_tensor = false;
    for (ValueId input : node.inputs) {
      operands.push_back(*map[static_cast<size_t>(input.index)]);
      any_tensor |= operands.back().rank() > 0;
    }
    if (any_tensor)
      for (Value& operand : operands) operand = broadcast_to(operand, shape);
    const std::vector<Value> made = builder_.emit(node.op, operands);
    for (size_t i = 0; i < made.size(); ++i) map[static_cast<size_t>(node.results[i].index)] = made[i];
  }
};

}  // namespace

Module inline_calls(Module module, const std::function<bool(const Graph&)>& take) {
  Module result = emptied(module);
  for (size_t i = 0; i < module.graphs.size(); ++i) CallInliner(module, {static_cast<int32_t>(i)}, result, take).run();
  return prune_graphs(std::move(result));
}

Module expand_map_tensors(Module module) {
  SG_CHECK(module.stage != Stage::Sharded, "expansion of a sharded module");
  Module result = emptied(module);
  for (size_t i = 0; i < module.graphs.size(); ++i) MapExpansion(module, {static_cast<int32_t>(i)}, result).run();
  return prune_graphs(std::move(result));
}

}  // namespace stepgraph
