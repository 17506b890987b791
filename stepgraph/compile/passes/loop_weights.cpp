// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/loop_weights.h"

#include <utility>
#include <vector>

#include "stepgraph/compile/ops/composite/composite.h"

namespace stepgraph {
namespace {

using DimList = std::vector<int64_t>;

/// The value is read as the right side of products alone, and its last dim is contracted in each.
bool is_multiplied_by_columns(const Graph& body, ValueId value) {
  bool is_read = false;
  for (const GraphOutput& output : body.outputs)
    if (output.value == value) return false;
  for (const Node& node : body.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != value) continue;
      const auto* product = std::get_if<MatMul>(&node.op);
      if (product == nullptr || i != 1 || product->rhs_contract != DimList{1} || !product->rhs_batch.empty()) return false;
      is_read = true;
    }
  }
  return is_read;
}

/// The loop's invariants that are to be turned.
std::vector<size_t> turned_inputs(const Loop& loop, const Graph& body) {
  std::vector<size_t> turned;
  for (auto i = static_cast<size_t>(loop.carried + loop.scanned); i < body.inputs.size(); ++i) {
    const ValueId value = body.inputs[i].value;
    if (body.type(value).rank() == 2 && is_multiplied_by_columns(body, value)) turned.push_back(i);
  }
  return turned;
}

Value turned(const NodeRewrite& node, Value value) {
  const auto* transpose = node.producer_op<Transpose>(value);
  return transpose != nullptr ? node.operand(value) : node.builder.emit_one(Transpose{{1, 0}}, {value});
}

/// The body on transposes of some of its inputs.
GraphId turned_body(Module& module, const Graph& body, const std::vector<size_t>& inputs) {
  const GraphId id = module.add_graph(body.name);
  Builder inner(module, id);
  std::vector<Value> map(body.values.size());
  std::vector<bool> is_turned(body.values.size(), false);
  for (const size_t i : inputs) is_turned[at(body.inputs[i].value)] = true;
  for (const GraphInput& input : body.inputs) {
    TensorType type = body.type(input.value);
    if (is_turned[at(input.value)]) {
      std::swap(type.shape[0], type.shape[1]);
      if (type.sharding) std::swap(type.sharding->dims[0], type.sharding->dims[1]);
    }
    map[at(input.value)] = inner.input(std::move(type));
  }
  for (const Node& node : body.nodes) {
    std::vector<Value> operands;
    for (const ValueId input : node.inputs) operands.push_back(map[at(input)]);
    std::vector<TensorType> types;
    for (const ValueId result : node.results) types.push_back(body.type(result));
    inner.set_provenance(Provenance::of(node));
    Op op = node.op;
    if (auto* product = std::get_if<MatMul>(&op); product != nullptr && is_turned[at(node.inputs[1])]) product->rhs_contract = {0};
    const std::vector<Value> made = inner.append(std::move(op), operands, std::move(types));
    for (size_t i = 0; i < made.size(); ++i) map[at(node.results[i])] = made[i];
  }
  for (const GraphOutput& output : body.outputs) inner.output(map[at(output.value)], output.role);
  return unite_graph(module, id);
}

}  // namespace

Rewritten turn_loop_weights(const NodeRewrite& node) {
  const auto* loop = std::get_if<Loop>(&node.op);
  if (loop == nullptr) return std::nullopt;
  Module& module = node.builder.module();
  const std::vector<size_t> inputs = turned_inputs(*loop, module.graph(loop->body));
  if (inputs.empty()) return std::nullopt;
  std::vector<Value> arguments(node.inputs.begin(), node.inputs.end());
  for (const size_t i : inputs) arguments[i] = turned(node, arguments[i]);
  Loop made = *loop;
  made.body = turned_body(module, module.graph(loop->body), inputs);
  return node.builder.emit(std::move(made), arguments);
}

}  // namespace stepgraph
