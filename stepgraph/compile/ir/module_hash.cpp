// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/module_hash.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stepgraph/compile/ir/symbol_stand_ins.h"

namespace stepgraph {
namespace {

/// Checkpoints belong to a hash: a role that was added later counts behind those that there were.
int64_t role_number(RoleKind kind) {
  constexpr auto added = static_cast<int64_t>(RoleKind::Tap), last = static_cast<int64_t>(RoleKind::NewState);
  const auto number = static_cast<int64_t>(kind);
  return number < added ? number : number == added ? last : number - 1;
}

/// Hashes of a module's parts, with stand-ins for its symbols.
class PartHasher {
 public:
  PartHasher(const Module& module, const SymbolStandIns& stand_ins) : module_(module), stand_ins_(stand_ins), bodies_(module.graphs.size()) {}

  Hash128 module();

  Hash128 body(GraphId id) {
    std::optional<Hash128>& known = bodies_[static_cast<size_t>(id.index)];
    if (!known) known = body(module_.graph(id));
    return *known;
  }

  /// With stand-ins, and derived symbols by what they stand for; made once for each size.
  const std::string& text(const Dim& dim) {
    const auto [known, is_new] = texts_.try_emplace(dim);
    if (is_new) known->second = new_text(dim);
    return known->second;
  }

  std::string stand_in(std::string_view name) const {
    const auto found = stand_ins_.find(name);
    return found == stand_ins_.end() ? std::string(name) : found->second;
  }

 private:
  Hash128 body(const Graph& graph);

  std::string new_text(const Dim& dim) const {
    try {
      return module_.symbols.expand(dim).substitute([&](const std::string& name) -> std::optional<Dim> { return Dim::symbol(stand_in(name)); }).text();
    } catch (const UserError&) {
      return "no size when symbols that nothing needs are one: as floordiv(n, a - b)";
    }
  }

  std::map<Hash128, Hash128> gradients(const std::vector<const Entry*>& entries) {
    std::vector<GraphId> todo;
    for (const Entry* entry : entries) todo.push_back(entry->graph);
    std::vector<bool> reached(module_.graphs.size(), false);
    std::map<Hash128, Hash128> result;
    while (!todo.empty()) {
      const GraphId id = todo.back();
      todo.pop_back();
      if (reached[static_cast<size_t>(id.index)]) continue;
      reached[static_cast<size_t>(id.index)] = true;
      const Graph& graph = module_.graph(id);
      for (const Node& node : graph.nodes)
        for (const GraphId called : called_graphs(node.op)) todo.push_back(called);
      if (!graph.gradient) continue;
      todo.push_back(*graph.gradient);
      result.emplace(body(id), body(*graph.gradient));
    }
    return result;
  }

  const Module& module_;
  const SymbolStandIns& stand_ins_;
  std::vector<std::optional<Hash128>> bodies_;
  std::map<Dim, std::string> texts_;
};

/// Feeds an op's attributes into a hash.
class FieldHasher : public EachField<FieldHasher> {
 public:
  FieldHasher(Hasher& hasher, PartHasher& parts) : hasher_(hasher), parts_(parts) {}

  void field(std::string_view, bool& value) { hasher_.number(value ? 1 : 0); }
  void field(std::string_view, int64_t& value) { hasher_.number(value); }
  void field(std::string_view, std::vector<int64_t>& value) {
    hasher_.number(static_cast<int64_t>(value.size()));
    for (const int64_t item : value) hasher_.number(item);
  }
  void field(std::string_view name, std::string& value) { hasher_.text(name == "symbol" ? parts_.stand_in(value) : value); }
  void field(std::string_view, double& value) { hasher_.number(std::bit_cast<int64_t>(value)); }
  void field(std::string_view, DType& value) { hasher_.number(static_cast<int64_t>(value)); }
  void field(std::string_view, std::optional<DType>& value) { hasher_.number(value ? static_cast<int64_t>(*value) : -1); }
  void field(std::string_view, Dim& value) { hasher_.text(parts_.text(value)); }
  void field(std::string_view, Shape& value) { shape(value); }
  void field(std::string_view, Literal& value) {
    hasher_.number(static_cast<int64_t>(value.dtype())).number(static_cast<int64_t>(value.rank()));
    for (const int64_t size : value.sizes()) hasher_.number(size);
    hasher_.bytes({value.data(), value.byte_count()});
  }
  void field(std::string_view, GraphId& value) { hasher_.hash(parts_.body(value)); }
  void field(std::string_view, EnumRef value) { hasher_.number(*value.value); }
  void field(std::string_view, std::vector<AxisRef>& value) { axes(value); }
  void field(std::string_view, Sharding& value) { sharding(value); }

  void type(const TensorType& type) {
    hasher_.number(static_cast<int64_t>(type.dtype));
    shape(type.shape);
    hasher_.number(type.sharding ? 1 : 0);
    if (type.sharding) sharding(*type.sharding);
  }

 private:
  void shape(const Shape& value) {
    hasher_.number(static_cast<int64_t>(value.size()));
    for (const Dim& dim : value) hasher_.text(parts_.text(dim));
  }
  void axes(const std::vector<AxisRef>& value) {
    hasher_.number(static_cast<int64_t>(value.size()));
    for (const AxisRef& axis : value) hasher_.text(axis.axis).number(axis.pre).number(axis.size);
  }
  void sharding(const Sharding& value) {
    hasher_.number(static_cast<int64_t>(value.dims.size()));
    for (const DimSharding& dim : value.dims) {
      axes(dim.axes);
      hasher_.text(parts_.text(dim.grain));
    }
    hasher_.number(static_cast<int64_t>(value.partial.size()));
    for (const PartialAxis& partial : value.partial) {
      axes({partial.axis});
      hasher_.number(static_cast<int64_t>(partial.kind));
    }
  }

  Hasher& hasher_;
  PartHasher& parts_;
};

Hash128 PartHasher::module() {
  Hasher hasher;
  hasher.number(static_cast<int64_t>(module_.stage)).number(static_cast<int64_t>(module_.mesh.axes.size()));
  for (const MeshAxis& axis : module_.mesh.axes) hasher.text(axis.name).number(axis.size);
  std::vector<const Entry*> entries;
  for (const Entry& entry : module_.entries) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) { return a->name < b->name; });
  for (const Entry* entry : entries) hasher.text(entry->name).hash(body(entry->graph));
  // The gradients of composites, which may call the composite itself: so they are no part of its body. Equal composites give equal pairs.
  for (const auto& [composite, gradient] : gradients(entries)) hasher.hash(composite).hash(gradient);
  std::map<std::string, Sharding> wishes;
  for (const StateInfo& state : module_.states)
    if (state.wish) wishes.emplace(state.name, *state.wish);
  FieldHasher fields(hasher, *this);
  for (auto& [state, wish] : wishes) {
    hasher.text(state);
    fields.field("wish", wish);
  }
  return hasher.finish();
}

/// Each value by what computes it; outputs in order. Values that no output needs leave no trace.
Hash128 PartHasher::body(const Graph& graph) {
  std::vector<Hash128> values(graph.values.size());
  const auto at = [&](ValueId value) -> Hash128& { return values[static_cast<size_t>(value.index)]; };
  Hasher whole;
  whole.text(graph.composite).number(static_cast<int64_t>(graph.inputs.size()));
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    Hasher hasher;
    hasher.text("input").number(static_cast<int64_t>(i)).number(role_number(input.role.kind)).text(input.role.name);
    if (input.role.batch_dim != 0) hasher.number(input.role.batch_dim);
    FieldHasher(hasher, *this).type(graph.type(input.value));
    at(input.value) = hasher.finish();
    whole.hash(at(input.value));
  }
  for (const Node& node : graph.nodes) {
    Hasher hasher;
    FieldHasher fields(hasher, *this);
    hasher.text(name(node.op));
    visit_fields(node.op, fields);
    hasher.number(static_cast<int64_t>(node.inputs.size()));
    for (const ValueId input : node.inputs) hasher.hash(at(input));
    for (const ValueId result : node.results) fields.type(graph.type(result));
    const Hash128 hash = hasher.finish();
    for (size_t i = 0; i < node.results.size(); ++i) at(node.results[i]) = Hasher().hash(hash).number(static_cast<int64_t>(i)).finish();
  }
  whole.number(static_cast<int64_t>(graph.outputs.size()));
  for (const GraphOutput& output : graph.outputs)
    whole.hash(at(output.value)).number(role_number(output.role.kind)).text(output.role.name);
  return whole.finish();
}

}  // namespace

Hash128 module_hash(const Module& module) {
  const SymbolStandIns stand_ins = symbol_stand_ins(module);
  return PartHasher(module, stand_ins).module();
}

}  // namespace stepgraph
