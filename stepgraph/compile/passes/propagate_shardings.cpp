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
    for (const Entry& entry : module.entries) {
      const Graph& graph = module.graph(entry.graph);
      for (const GraphInput& input : graph.inputs)
        if (is_state(input.role.kind)) states_.emplace(input.role.name, of_input(input.role, graph.type(input.value)));
    }
  }

  Sharding of_input(const Role& role, const TensorType& type) const {
    for (const InputSharding& rule : options_.inputs)
      if ((!rule.kind || *rule.kind == role.kind) && fits_pattern(rule.pattern, role.name)) return checked(rule.sharding, role, type);
    if (type.sharding) return checked(*type.sharding, role, type);
    Sharding layout = Sharding::replicated(type.rank());
    if (role.kind == RoleKind::Batch && role.batch_dim < static_cast<int64_t>(type.rank())) layout.dims[static_cast<size_t>(role.batch_dim)].axes = batch_axes_;
    return checked(std::move(layout), role, type);
  }

  Sharding of_output(const Role& role, const TensorType& type) const {
    if (role.kind != RoleKind::NewState) return Sharding::replicated(type.rank());
    const auto found = states_.find(role.name);
    if (found != states_.end()) return found->second;
    TensorType plain = type;
    plain.sharding.reset();
    return of_input(role, plain);
  }

  bool any_state_is_split() const {
    return std::any_of(states_.begin(), states_.end(), [](const auto& state) { return !state.second.is_replicated(); });
  }

 private:
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
    }
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
