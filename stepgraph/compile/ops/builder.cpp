// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/builder.h"

#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

const TensorType& Value::type() const {
  SG_CHECK(builder != nullptr, "use of an empty Value");
  return builder->graph().type(id);
}

const Dim& Value::dim(int64_t index) const {
  const int64_t count = rank();
  const int64_t wrapped = index < 0 ? index + count : index;
  if (wrapped < 0 || wrapped >= count)
    throw UserError("dim " + std::to_string(index) + " is out of range for " + text(type()), builder->place());
  return type().shape[static_cast<size_t>(wrapped)];
}

Value Builder::input(TensorType type, Role role) {
  Graph& g = graph();
  if (is_state(role.kind)) type = module_.declare_state(role, std::move(type));
  ValueId id{static_cast<int32_t>(g.values.size())};
  g.values.push_back({std::move(type), -1});
  g.inputs.push_back({id, std::move(role)});
  return {this, id};
}

void Builder::output(Value value, Role role) {
  SG_CHECK(value.builder == this, "output of another graph's value");
  graph().outputs.push_back({value.id, std::move(role)});
}

std::vector<Value> Builder::emit(Op op, std::span<const Value> inputs) {
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (const Value& input : inputs) {
    if (input.builder != this)
      throw UserError(std::string(name(op)) + ": an operand belongs to another graph; pass it in as an argument of the layer", place_);
    types.push_back(input.type());
  }
  try {
    std::vector<TensorType> results = infer_types(op, types, module_);
    return append(std::move(op), inputs, std::move(results));
  } catch (const UserError& error) {
    throw UserError(error.what(), place_);
  }
}

std::vector<Value> Builder::append(Op op, std::span<const Value> inputs, std::vector<TensorType> results) {
  Graph& g = graph();
  Node node;
  node.op = std::move(op);
  node.inputs.reserve(inputs.size());
  for (const Value& input : inputs) node.inputs.push_back(input.id);
  node.place = place_;
  node.scope = scope_;
  node.phase = phase_;
  std::vector<Value> values;
  values.reserve(results.size());
  for (TensorType& type : results) {
    ValueId id{static_cast<int32_t>(g.values.size())};
    g.values.push_back({std::move(type), static_cast<int32_t>(g.nodes.size())});
    node.results.push_back(id);
    values.push_back({this, id});
  }
  g.nodes.push_back(std::move(node));
  return values;
}

std::vector<Value> Builder::inline_graph(const Graph& source, std::span<const Value> inputs) {
  SG_CHECK(inputs.size() == source.inputs.size(), "inline_graph: wrong number of inputs for " + source.name);
  std::vector<Value> map(source.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) map[static_cast<size_t>(source.inputs[i].value.index)] = inputs[i];
  const SourcePlace outer_place = place_;
  const std::string outer_scope = scope_;
  const Phase outer_phase = phase_;
  for (const Node& node : source.nodes) {
    std::vector<Value> arguments;
    arguments.reserve(node.inputs.size());
    for (ValueId input : node.inputs) arguments.push_back(map[static_cast<size_t>(input.index)]);
    std::vector<TensorType> types;
    types.reserve(node.results.size());
    for (ValueId result : node.results) types.push_back(source.type(result));
    place_ = node.place.known() ? node.place : outer_place;
    scope_ = node.scope.empty() ? outer_scope : node.scope;
    phase_ = node.phase == Phase::None ? outer_phase : node.phase;
    std::vector<Value> results = append(node.op, arguments, std::move(types));
    for (size_t i = 0; i < results.size(); ++i) map[static_cast<size_t>(node.results[i].index)] = results[i];
  }
  place_ = outer_place;
  scope_ = outer_scope;
  phase_ = outer_phase;
  std::vector<Value> outputs;
  outputs.reserve(source.outputs.size());
  for (const GraphOutput& output : source.outputs) outputs.push_back(map[static_cast<size_t>(output.value.index)]);
  return outputs;
}

std::vector<Value> call(Builder& builder, GraphId graph, std::span<const Value> inputs) { return builder.emit(Call{graph}, inputs); }

std::string iteration_symbol(Module& module, int64_t loops_inside) {
  Symbol symbol{"iteration" + std::to_string(loops_inside), SymbolKind::Iteration, 0, INT64_MAX, 1, {}};
  // A size of the model's own may be named so.
  for (const Symbol* known = module.symbols.find(symbol.name); known && *known != symbol; known = module.symbols.find(symbol.name)) symbol.name += '_';
  module.symbols.declare(symbol);
  return symbol.name;
}

}  // namespace stepgraph
