// SPDX-License-Identifier: Apache-2.0
// One graph under given layouts of its inputs: the walk of propagate_shardings (see there), which builds the Sharded graph as it decides.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/compile/passes/graph_facts.h"

namespace stepgraph {

/// A graph of the Sharded module and the layouts of its outputs.
struct SpecialisedGraph {
  GraphId graph;
  std::vector<Sharding> outputs;
  /// By output: the axes over which its last step added partial sums to something whole, and so had to reduce them first. A loop that carries it may take
  /// it as partial instead, and reduce once at the end.
  std::vector<std::vector<PartialAxis>> wishes;
};
/// A logical graph under layouts of its inputs; an output with a wanted layout gets it, others come as they fall.
using Specialise =
    std::function<const SpecialisedGraph&(GraphId logical, const std::vector<Sharding>& inputs, const std::vector<std::optional<Sharding>>& outputs)>;
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
  SpecialisedGraph run(const std::vector<Sharding>& inputs, const std::vector<std::optional<Sharding>>& outputs);

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
  };
  struct Partials {
    std::vector<std::vector<PartialAxis>> operands;
    std::vector<PartialAxis> results;
  };

  State& state(ValueId value) { return states_[static_cast<size_t>(value.index)]; }
  bool is_lazy(ValueId value) { return state(value).is_lazy; }
  const Sharding& sharding(ValueId value);
  Sharding layout_for_control(ValueId value, const Node& node);
  Value use(ValueId value, const Sharding& target);
  void make(ValueId value, const Sharding& target);
  void add_version(ValueId value, Version version);
  void set_results(const Node& node, std::span<const Value> values);

  void ordinary(size_t index);
  bool can_wait(size_t index);
  FactorSplits decide_splits(size_t index);
  std::vector<PartialAxis> wish(ValueId output);
  Partials decide_partials(size_t index, const FactorSplits& splits);
  bool passes(const Node& node, const ShardingRule& rule, const PartialAxis& partial, std::vector<size_t>& group);
  std::vector<Value> append_ordinary(size_t index, const FactorSplits& splits, const Partials& partials);
  std::vector<Value> append(const Node& node, Op op, std::span<const Value> inputs, std::vector<Sharding> results);

  void call(const Node& node, Call op);
  void loop(const Node& node, Loop op);
  const SpecialisedGraph& fix_loop(const Loop& op, std::vector<Sharding>& body_inputs);
  void map_tensors(const Node& node, MapTensors op);
  std::vector<Value> append_map(const Node& node, MapTensors op, const std::vector<size_t>& members, const std::vector<Sharding>& layouts);
  Value whole_scalar(Value value);
  Value combined(ReduceKind kind, Value a, Value b);

  ShardingWalkRequest request_;
  const Graph& source_;
  Builder builder_;
  std::vector<State> states_;
  std::vector<bool> reduce_early_;
};

}  // namespace stepgraph
