// SPDX-License-Identifier: Apache-2.0
// One graph under given layouts of its inputs: the walk of propagate_shardings (see there), which builds the Sharded graph as it decides.
//
// Sources (what depends on no tensor, and broadcasts of anything) are lazy: not made where they stand, but in the layout of their first user. They stay so
// across graphs. An input that is lazy at the caller is *open* in the callee: its first user there says how the caller shall make it. A result that is lazy at
// the end of the callee is open at the caller, whose first user of it says how the callee shall make it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/compile/passes/graph_facts.h"

namespace stepgraph {

/// How an input lies; when open, how it lies unless a user wants it otherwise.
struct InputLayout {
  Sharding sharding;
  bool is_open = false;
  bool operator==(const InputLayout&) const = default;
};
/// By output: the wanted layout, or nothing to take it as it falls.
using WantedLayouts = std::vector<std::optional<Sharding>>;

/// A graph of the Sharded module and its layouts.
struct SpecialisedGraph {
  GraphId graph;
  std::vector<Sharding> inputs, outputs;
  /// By input: open, and wanted in several layouts. A whole one serves them all without communication.
  std::vector<bool> contested;
  /// By output: it was not wanted in any layout, and can be made in whichever is.
  std::vector<bool> open;
  /// By output: the axes over which its last step added partial sums to something whole, and so had to reduce them first. A loop that carries it may take
  /// it as partial instead, and reduce once at the end.
  std::vector<std::vector<PartialAxis>> wishes;
};
using Specialise = std::function<const SpecialisedGraph&(GraphId logical, const std::vector<InputLayout>& inputs, const WantedLayouts& outputs)>;
struct ShardingWalkRequest {
  const Module& logical;
  GraphId source;
  const GraphFacts& facts;
  Module& target;
  GraphId graph;  ///< empty graph of `target`, to be filled
  Specialise specialise;
  /// Partial sums wait for their user instead of being reduced where they are made: a user with split state scatters them.
  bool reduce_late = false;
};

class ShardingWalk {
 public:
  explicit ShardingWalk(ShardingWalkRequest request);
  /// Fills the graph.
  SpecialisedGraph run(const std::vector<InputLayout>& inputs, const WantedLayouts& outputs);

 private:
  struct Version {
    Sharding sharding;
    ValueId value;
  };
  struct State {
    std::vector<Version> versions;
    size_t current = 0;    // the version that users start from
    bool is_lazy = false;  // made on demand, in any layout
    int lazy_depth = 0;    // of lazy values that making it would make
    Sharding hint;         // of a lazy one: its layout where no user has another
    int control = -1;      // of an open result: its call or loop
    size_t place = 0;      // which result of it, or which input of the graph
  };
  struct Partials {
    std::vector<std::vector<PartialAxis>> operands;
    std::vector<PartialAxis> results;
  };
  /// A call or loop in the target whose open results are not settled.
  struct OpenControl {
    size_t node;
    GraphId callee;
    std::vector<InputLayout> inputs;
    WantedLayouts wanted;
    const SpecialisedGraph* made;
    bool is_loop;
    size_t carried;  // of a loop: the results after these are stacks
  };

  State& state(ValueId value) { return states_[static_cast<size_t>(value.index)]; }
  bool is_lazy(ValueId value) { return state(value).is_lazy; }
  const Shape& shape(ValueId value) const { return source_.type(value).shape; }
  double size(ValueId value) const { return request_.facts.size[static_cast<size_t>(value.index)]; }
  const Sharding& sharding(ValueId value);
  const Sharding& usual_layout(ValueId value) { return is_lazy(value) ? state(value).hint : sharding(value); }
  Value use(ValueId value, const Sharding& target);
  void make(ValueId value, const Sharding& target);
  void make_node(ValueId value, size_t index, const Sharding& target);
  void settle_input(ValueId value, const Sharding& target);
  void add_version(ValueId value, Version version);
  void set_results(const Node& node, std::span<const Value> values);
  void output(size_t index, const std::optional<Sharding>& wanted, SpecialisedGraph& made);

  void ordinary(size_t index);
  bool can_wait(size_t index, const FactorSplits& splits);
  bool comes_from_sources(const Node& node);
  void wait(const Node& node, std::vector<Sharding> hints);
  FactorSplits decide_splits(size_t index);
  std::vector<PartialAxis> wish(ValueId output);
  Partials decide_partials(size_t index, const FactorSplits& splits);
  bool passes(const Node& node, const ShardingRule& rule, const PartialAxis& partial, std::vector<size_t>& group);
  std::vector<Value> append_ordinary(size_t index, const FactorSplits& splits, const Partials& partials);
  std::vector<Value> append(const Node& node, Op op, std::span<const Value> inputs, std::vector<Sharding> results);

  // sharding_walk_control.cpp
  InputLayout layout_for_control(ValueId value);
  void call(const Node& node, const Call& op);
  std::vector<Value> append_call(const Node& node, const Call& op, const WantedLayouts& wanted, OpenControl& control);
  void make_call(ValueId value, const Node& node, const Call& op, const Sharding& target);
  void loop(const Node& node, Loop op);
  OpenControl fix_loop(const Loop& op, std::vector<InputLayout> body_inputs);
  void set_control_results(const Node& node, std::span<const Value> values, OpenControl control);
  void settle_result(ValueId value, const Sharding& target);

  // sharding_walk_maps.cpp
  void map_tensors(const Node& node, MapTensors op);
  std::vector<Value> append_map(const Node& node, MapTensors op, const std::vector<size_t>& members, const std::vector<Sharding>& layouts);
  Value whole_scalar(Value value);
  Value combined(ReduceKind kind, Value a, Value b);

  ShardingWalkRequest request_;
  const Graph& source_;
  Builder builder_;
  std::vector<State> states_;
  std::vector<bool> reduce_early_, contested_;
  std::vector<OpenControl> controls_;
};

}  // namespace stepgraph
