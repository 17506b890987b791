// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/propagate_shardings.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "stepgraph/base/hash.h"
#include "stepgraph/base/pattern.h"
#include "stepgraph/compile/passes/sharding_walk.h"

namespace stepgraph {
namespace {

/// Layouts of the inputs and outputs of entries.
class EntryLayouts {
 public:
  EntryLayouts(const Module& module, const Mesh& mesh, const ShardingOptions& options) : mesh_(mesh), options_(options) {
    choose_batch_axes();
    for (const StateInfo& state : module.states) {
      TensorType type = state.type;
      type.sharding = state.wish;
      states_.emplace(state.name, chosen({state.role, state.name}, type));
    }
  }

  Sharding of_input(const Role& role, const TensorType& type) const { return is_state(role.kind) ? states_.at(role.name) : chosen(role, type); }

  Sharding of_output(const Role& role, const TensorType& type) const {
    if (role.kind != RoleKind::NewState) return Sharding::replicated(type.rank());
    const auto found = states_.find(role.name);
    if (found != states_.end()) return found->second;
    return chosen(role, {type.dtype, type.shape, {}});  // that no entry takes
  }

  bool any_state_is_split() const {
    return std::any_of(states_.begin(), states_.end(), [](const auto& state) { return !state.second.is_replicated(); });
  }

 private:
  /// By the first rule that fits, by the layout of `type`, or the batch axes on the rows and whole without.
  Sharding chosen(const Role& role, const TensorType& type) const {
    for (const InputSharding& rule : options_.inputs)
      if ((!rule.kind || *rule.kind == role.kind) && matches(rule.pattern, role.name)) return checked(rule.sharding, role, type);
    if (type.sharding) return checked(*type.sharding, role, type);
    Sharding layout = Sharding::replicated(type.rank());
    if (role.kind == RoleKind::Batch && role.batch_dim < static_cast<int64_t>(type.rank())) layout.dims[static_cast<size_t>(role.batch_dim)].axes = batch_axes_;
    return checked(std::move(layout), role, type);
  }

  void choose_batch_axes() {
    for (const std::string& axis : options_.batch_axes) {
      if (mesh_.find(axis) == nullptr) throw UserError("batch axes: found axis '" + axis + "', the mesh has '" + mesh_.text() + "'");
      batch_axes_.push_back({axis});
    }
    if (!batch_axes_.empty() || mesh_.axes.empty()) return;
    batch_axes_.push_back({mesh_.find("data") != nullptr ? "data" : mesh_.axes.front().name});
  }

  Sharding checked(Sharding sharding, const Role& role, const TensorType& type) const {
    try {
      check_sharding(sharding, type.rank(), mesh_);
    } catch (const UserError& error) {
      throw UserError(std::string(name(role.kind)) + " '" + role.name + "': " + error.what());
    }
    return canonical(std::move(sharding), type.shape, mesh_);
  }

  const Mesh& mesh_;
  const ShardingOptions& options_;
  std::vector<AxisRef> batch_axes_;
  std::map<std::string, Sharding> states_;
};

/// Changes of layout between the backward and what reads gradients behind it.
void mark_sync(Graph& graph) {
  std::vector<bool> in_backward(graph.values.size()), in_update(graph.values.size());
  const auto at = [](ValueId value) { return static_cast<size_t>(value.index); };
  for (const GraphOutput& output : graph.outputs)
    if (output.role.kind == RoleKind::Gradient) in_update[at(output.value)] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const bool is_reshard = std::holds_alternative<Reshard>(node.op);
    for (const ValueId input : node.inputs) {
      if (is_reshard ? in_backward[at(node.results[0])] : node.phase == Phase::Backward) in_backward[at(input)] = true;
      if (is_reshard ? in_update[at(node.results[0])] : node.phase == Phase::Update) in_update[at(input)] = true;
    }
  }
  for (Node& node : graph.nodes) {
    if (!std::holds_alternative<Reshard>(node.op) || in_backward[at(node.results[0])] || !in_update[at(node.results[0])]) continue;
    const int32_t producer = graph.values[at(node.inputs[0])].node;
    const Phase made_in = producer < 0 ? Phase::None : graph.nodes[static_cast<size_t>(producer)].phase;
    if (made_in == Phase::Backward || made_in == Phase::Sync) node.phase = Phase::Sync;
  }
}

/// What a graph is specialised for. An entry's graph is its own: it deals with the outside.
struct Specialisation {
  GraphId graph;
  bool is_entry = false;
  std::vector<InputLayout> inputs;
  WantedLayouts outputs;
  bool operator==(const Specialisation&) const = default;
};
struct SpecialisationHash {
  size_t operator()(const Specialisation& key) const {
    uint64_t result = mix_hash(static_cast<uint64_t>(key.graph.index), key.is_entry ? 1 : 0);
    for (const InputLayout& input : key.inputs) result = mix_hash(mix_hash(result, hash(input.sharding)), input.is_open ? 1 : 0);
    for (const auto& output : key.outputs) result = mix_hash(result, output ? hash(*output) : 0);
    return result;
  }
};

class Propagator {
 public:
  Propagator(const Module& logical, const Mesh& mesh, const ShardingOptions& options) : logical_(logical), layouts_(logical, mesh, options), facts_(logical) {
    sharded_.name = logical.name;
    sharded_.stage = Stage::Sharded;
    sharded_.symbols = logical.symbols;
    sharded_.mesh = mesh;
    declare_coordinates(sharded_.symbols, mesh);
  }

  Module run() {
    for (const Entry& entry : logical_.entries) {
      const Graph& graph = logical_.graph(entry.graph);
      std::vector<InputLayout> inputs;
      WantedLayouts outputs;
      for (const GraphInput& input : graph.inputs) inputs.push_back({layouts_.of_input(input.role, graph.type(input.value)), false});
      for (const GraphOutput& output : graph.outputs) outputs.push_back(layouts_.of_output(output.role, graph.type(output.value)));
      sharded_.entries.push_back({entry.name, specialise({entry.graph, true, std::move(inputs), std::move(outputs)}).graph});
      mark_sync(sharded_.graph(sharded_.entries.back().graph));
    }
    for (StateInfo& state : sharded_.states) state.wish = logical_.find_state(state.name)->wish;
    // Trials of loop bodies that were not kept.
    return prune_graphs(std::move(sharded_));
  }

 private:
  const SpecialisedGraph& specialise(Specialisation wanted) {
    const auto found = specialised_.find(wanted);
    if (found != specialised_.end()) return found->second;
    SpecialisedGraph made = walk(wanted);
    if (std::find(made.contested.begin(), made.contested.end(), true) != made.contested.end()) {
      Specialisation settled = wanted;
      for (size_t i = 0; i < made.contested.size(); ++i)
        if (made.contested[i]) settled.inputs[i] = {Sharding::replicated(settled.inputs[i].sharding.dims.size()), false};
      made = specialise(std::move(settled));
    }
    return specialised_.emplace(std::move(wanted), std::move(made)).first->second;
  }

  SpecialisedGraph walk(const Specialisation& wanted) {
    const Graph& source = logical_.graph(wanted.graph);
    const GraphId target = sharded_.add_graph(source.name);
    sharded_.graph(target).composite = source.composite;
    ShardingWalk walk({logical_, wanted.graph, facts_.of(wanted.graph), sharded_, target,
                       [this](GraphId callee, const auto& in, const auto& out) -> const SpecialisedGraph& { return specialise({callee, false, in, out}); },
                       layouts_.any_state_is_split()});
    return walk.run(wanted.inputs, wanted.outputs);
  }

  const Module& logical_;
  EntryLayouts layouts_;
  FactTable facts_;
  Module sharded_;
  std::unordered_map<Specialisation, SpecialisedGraph, SpecialisationHash> specialised_;  ///< looked up only; references stay valid
};

}  // namespace

Module propagate_shardings(Module logical, const Mesh& mesh, const ShardingOptions& options) {
  SG_CHECK(logical.stage == Stage::Logical, "propagate_shardings wants a logical module");
  return Propagator(logical, mesh, options).run();
}

}  // namespace stepgraph
