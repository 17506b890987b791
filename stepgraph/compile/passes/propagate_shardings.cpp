// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/propagate_shardings.h"

#include <algorithm>
#include <map>

#include "stepgraph/compile/passes/sharding_walk.h"

namespace stepgraph {
namespace {

bool fits_pattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, star_name = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*')
      star = p++, star_name = n;
    else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]))
      ++p, ++n;
    else if (star != std::string_view::npos)
      p = star + 1, n = ++star_name;
    else
      return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

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
      if ((!rule.kind || *rule.kind == role.kind) && fits_pattern(rule.pattern, role.name)) return checked(rule.sharding, role, type);
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
      std::vector<Sharding> inputs;
      std::vector<std::optional<Sharding>> outputs;
      for (const GraphInput& input : graph.inputs) inputs.push_back(layouts_.of_input(input.role, graph.type(input.value)));
      for (const GraphOutput& output : graph.outputs) outputs.push_back(layouts_.of_output(output.role, graph.type(output.value)));
      sharded_.entries.push_back({entry.name, specialise(entry.graph, inputs, outputs).graph});
      mark_sync(sharded_.graph(sharded_.entries.back().graph));
    }
    for (StateInfo& state : sharded_.states) state.wish = logical_.find_state(state.name)->wish;
    // Trials of loop bodies that were not kept.
    return prune_graphs(std::move(sharded_));
  }

 private:
  const SpecialisedGraph& specialise(GraphId id, const std::vector<Sharding>& inputs, const std::vector<std::optional<Sharding>>& outputs) {
    std::string key = std::to_string(id.index);
    for (const Sharding& input : inputs) key += "|" + text(input);
    key += "->";
    for (const auto& output : outputs) key += "|" + (output ? text(*output) : "?");
    const auto found = specialised_.find(key);
    if (found != specialised_.end()) return found->second;
    const Graph& source = logical_.graph(id);
    const GraphId target = sharded_.add_graph(source.name);
    sharded_.graph(target).composite = source.composite;
    ShardingWalk walk({logical_, id, facts_.of(id), sharded_, target,
                       [this](GraphId callee, const auto& in, const auto& out) -> const SpecialisedGraph& { return specialise(callee, in, out); },
                       layouts_.any_state_is_split()});
    SpecialisedGraph made = walk.run(inputs, outputs);
    return specialised_.emplace(std::move(key), std::move(made)).first->second;
  }

  const Module& logical_;
  EntryLayouts layouts_;
  FactTable facts_;
  Module sharded_;
  std::map<std::string, SpecialisedGraph> specialised_;
};

}  // namespace

Module propagate_shardings(Module logical, const Mesh& mesh, const ShardingOptions& options) {
  SG_CHECK(logical.stage == Stage::Logical, "propagate_shardings wants a logical module");
  return Propagator(logical, mesh, options).run();
}

}  // namespace stepgraph
