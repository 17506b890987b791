// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/partition.h"

#include <algorithm>
#include <map>
#include <utility>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/compile/passes/lower_reshard.h"

namespace stepgraph {
namespace {

Value with_layout(Value value, std::optional<Sharding> layout) {
  value.builder->graph().values[at(value.id)].type.sharding = std::move(layout);
  return value;
}

/// Bodies of maps whose reductions are summands of halves: what is reduced is f32 at the end of the body.
class WideBodies {
 public:
  WideBodies(const Module& sharded, Module& local) : sharded_(sharded), local_(local) {}

  GraphId of(GraphId body, size_t reduced) {
    const auto [known, is_new] = bodies_.try_emplace({body, reduced});
    if (!is_new) return known->second;
    const Graph& source = sharded_.graph(body);
    known->second = local_.add_graph(source.name + "_f32");
    Builder builder(local_, known->second);
    std::vector<Value> inputs;
    for (const GraphInput& input : source.inputs) inputs.push_back(builder.input(source.type(input.value)));
    const std::vector<Value> outputs = builder.inline_graph(source, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool is_wide = i + reduced >= outputs.size();
      builder.output(is_wide ? with_layout(convert(outputs[i], DType::F32), Sharding{}) : outputs[i]);
    }
    return known->second;
  }

 private:
  const Module& sharded_;
  Module& local_;
  std::map<std::pair<GraphId, size_t>, GraphId> bodies_;
};

class GraphPartition {
 public:
  GraphPartition(const Module& sharded, GraphId id, Module& local, LocalSizes& sizes, WideBodies& wide_bodies)
      : source_(sharded.graph(id)), local_(local), sizes_(sizes), wide_bodies_(wide_bodies), builder_(local, id), map_(source_.values.size()) {
    is_entry_ = std::any_of(sharded.entries.begin(), sharded.entries.end(), [&](const Entry& entry) { return entry.graph == id; });
  }

  void run() {
    for (const GraphInput& input : source_.inputs) {
      TensorType type = local_type(input.value);
      if (is_entry_) type.dtype = source_.type(input.value).dtype;  // from outside come values of the program's own dtypes
      map(input.value) = builder_.input(std::move(type), input.role);
    }
    for (const GraphInput& input : source_.inputs) map(input.value) = converted(map(input.value), local_dtype(source_.type(input.value)));
    for (const Node& node : source_.nodes) {
      builder_.set_provenance(Provenance::of(node));
      const size_t first_new = builder_.graph().values.size();
      const std::vector<Value> results = lower(node);
      SG_CHECK(results.size() == node.results.size(), std::string(name(node.op)) + ": wrong number of local results");
      for (size_t i = 0; i < results.size(); ++i) {
        check_result(node, node.results[i], results[i], first_new);
        map(node.results[i]) = results[i];
      }
    }
    for (const GraphOutput& output : source_.outputs) {
      const Value value = map(output.value);
      builder_.output(is_entry_ ? converted(value, source_.type(output.value).dtype) : value, output.role);
    }
  }

 private:
  Value& map(ValueId value) { return map_[static_cast<size_t>(value.index)]; }

  const Sharding& layout(ValueId value) const {
    const TensorType& type = source_.type(value);
    SG_CHECK(type.sharding.has_value(), "partition: a value without a sharding");
    return *type.sharding;
  }

  TensorType local_type(ValueId value) const {
    TensorType type = source_.type(value);
    type.shape = sizes_.shape(type.shape, layout(value));
    type.dtype = local_dtype(type);
    return type;
  }

  /// With the layout that the value has.
  Value converted(Value value, DType dtype) {
    if (value.dtype() == dtype) return value;
    const std::optional<Sharding> sharding = value.type().sharding;
    return with_layout(convert(value, dtype), sharding);
  }

  /// Where the results are summands of halves, the op works in f32 throughout.
  bool widens(const Node& node) const {
    return std::any_of(node.results.begin(), node.results.end(),
                       [&](ValueId result) { return local_dtype(source_.type(result)) != source_.type(result).dtype; });
  }

  std::vector<Value> lower(const Node& node) {
    std::vector<Value> inputs;
    for (ValueId input : node.inputs) inputs.push_back(map(input));
    if (const auto* reshard = std::get_if<Reshard>(&node.op)) return {lower_reshard(inputs.at(0), source_.type(node.inputs[0]), reshard->target, sizes_)};
    Op op = node.op;
    if (is_control(op)) {
      std::vector<TensorType> types;
      for (ValueId result : node.results) types.push_back(local_type(result));
      if (MapTensors* map = std::get_if<MapTensors>(&op); map && widens(node)) map->body = wide_bodies_.of(map->body, static_cast<size_t>(map->reduced));
      return builder_.append(std::move(op), inputs, std::move(types));
    }
    if (widens(node)) {
      for (Value& input : inputs)
        if (is_half(input.dtype())) input = converted(input, DType::F32);
      for_each_field<DType>(op, [](DType& dtype) { dtype = is_half(dtype) ? DType::F32 : dtype; });
      for_each_field<std::optional<DType>>(op, [](std::optional<DType>& dtype) { dtype = dtype && is_half(*dtype) ? DType::F32 : dtype; });
    }
    const OpInfo& info = op_info(op);
    if (info.partition == nullptr) return builder_.emit(std::move(op), inputs);
    std::vector<TensorType> input_types, result_types;
    for (ValueId input : node.inputs) input_types.push_back(source_.type(input));
    for (ValueId result : node.results) result_types.push_back(source_.type(result));
    return info.partition({builder_, op, input_types, result_types, inputs, local_.mesh, sizes_});
  }

  void check_result(const Node& node, ValueId global, Value local, size_t first_new) {
    TensorType wanted = local_type(global);
    const auto differs = [&](const std::string& what) {
      throw InternalError("partition: " + std::string(name(node.op)) + " gives " + what + ", its layout says " + text(wanted) +
                          (node.place.known() ? " (" + node.place.text() + ")" : ""));
    };
    if (local.dtype() != wanted.dtype || local.shape().size() != wanted.shape.size()) differs(text(local.type()));
    for (size_t d = 0; d < wanted.shape.size(); ++d)
      if (local.shape()[d] != wanted.shape[d] && local_.symbols.equal(local.shape()[d], wanted.shape[d]) != Truth::True) differs(text(local.type()));
    // A value that was there before (a change of layout that moves nothing) keeps its own record.
    if (static_cast<size_t>(local.id.index) >= first_new) builder_.graph().values[static_cast<size_t>(local.id.index)].type = std::move(wanted);
  }

  const Graph& source_;
  Module& local_;
  LocalSizes& sizes_;
  WideBodies& wide_bodies_;
  bool is_entry_ = false;
  Builder builder_;
  std::vector<Value> map_;
};

}  // namespace

Module partition(Module sharded) {
  SG_CHECK(sharded.stage == Stage::Sharded, "partition wants a sharded module");
  Module local;
  local.name = sharded.name;
  local.stage = Stage::Local;
  local.symbols = sharded.symbols;
  local.mesh = sharded.mesh;
  local.entries = sharded.entries;
  for (const Graph& graph : sharded.graphs) {
    const GraphId id = local.add_graph(graph.name);
    local.graph(id).composite = graph.composite;
  }
  LocalSizes sizes(local.symbols, local.mesh);
  WideBodies wide_bodies(sharded, local);
  for (size_t i = 0; i < sharded.graphs.size(); ++i) GraphPartition(sharded, {static_cast<int32_t>(i)}, local, sizes, wide_bodies).run();
  for (StateInfo& state : local.states) state.wish = sharded.states.find(state.name)->wish;
  return local;
}

}  // namespace stepgraph
