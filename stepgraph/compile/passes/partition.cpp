// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/partition.h"

#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/compile/passes/lower_reshard.h"

namespace stepgraph {
namespace {

/// Local shapes of one module. Its layers hold the same few sizes and splits again and again; their expressions are worked out once.
class LocalShapes {
 public:
  explicit LocalShapes(const Module& local) : local_(local) {}
  Shape of(const Shape& shape, const Sharding& sharding) {
    SG_CHECK(sharding.dims.size() == shape.size(), "partition: sharding and rank differ");
    Shape result = shape;
    for (size_t d = 0; d < shape.size(); ++d)
      if (!sharding.dims[d].axes.empty()) result[d] = extent(shape[d], sharding.dims[d]);
    return result;
  }

 private:
  struct Known {
    Dim size;
    DimSharding sharding;
    Dim extent;
  };
  const Dim& extent(const Dim& size, const DimSharding& sharding) {
    for (const Known& known : known_)
      if (known.size == size && known.sharding == sharding) return known.extent;
    if (known_.size() == known_max) known_.clear();  // a search stays short
    known_.push_back({size, sharding, local_extent(size, sharding, local_.mesh, local_.symbols)});
    return known_.back().extent;
  }
  static constexpr size_t known_max = 64;
  const Module& local_;
  std::vector<Known> known_;
};

class GraphPartition {
 public:
  GraphPartition(const Module& sharded, GraphId id, Module& local, LocalShapes& shapes)
      : source_(sharded.graph(id)), local_(local), shapes_(shapes), builder_(local, id), map_(source_.values.size()) {}

  void run() {
    for (const GraphInput& input : source_.inputs) map(input.value) = builder_.input(local_type(input.value), input.role);
    for (const Node& node : source_.nodes) {
      builder_.set_place(node.place);
      builder_.set_scope(node.scope);
      builder_.set_phase(node.phase);
      const size_t first_new = builder_.graph().values.size();
      const std::vector<Value> results = lower(node);
      SG_CHECK(results.size() == node.results.size(), std::string(name(node.op)) + ": wrong number of local results");
      for (size_t i = 0; i < results.size(); ++i) {
        check_result(node, node.results[i], results[i], first_new);
        map(node.results[i]) = results[i];
      }
    }
    for (const GraphOutput& output : source_.outputs) builder_.output(map(output.value), output.role);
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
    type.shape = shapes_.of(type.shape, layout(value));
    return type;
  }

  std::vector<Value> lower(const Node& node) {
    std::vector<Value> inputs;
    for (ValueId input : node.inputs) inputs.push_back(map(input));
    if (const auto* reshard = std::get_if<Reshard>(&node.op))
      return {lower_reshard(inputs.at(0), source_.type(node.inputs[0]).shape, layout(node.inputs[0]), reshard->target, local_.mesh, local_.symbols)};
    if (is_control(node.op)) {
      std::vector<TensorType> types;
      for (ValueId result : node.results) types.push_back(local_type(result));
      return builder_.append(node.op, inputs, std::move(types));
    }
    const OpInfo& info = op_info(node.op);
    if (info.partition == nullptr) return builder_.emit(node.op, inputs);
    std::vector<TensorType> input_types, result_types;
    for (ValueId input : node.inputs) input_types.push_back(source_.type(input));
    for (ValueId result : node.results) result_types.push_back(source_.type(result));
    return info.partition({builder_, node.op, input_types, result_types, inputs, local_.mesh, local_.symbols});
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
  LocalShapes& shapes_;
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
  declare_coordinates(local.symbols, local.mesh);
  for (const Graph& graph : sharded.graphs) {
    const GraphId id = local.add_graph(graph.name);
    local.graph(id).composite = graph.composite;
  }
  LocalShapes shapes(local);
  for (size_t i = 0; i < sharded.graphs.size(); ++i) GraphPartition(sharded, {static_cast<int32_t>(i)}, local, shapes).run();
  for (StateInfo& state : local.states) state.wish = sharded.find_state(state.name)->wish;
  return local;
}

}  // namespace stepgraph
