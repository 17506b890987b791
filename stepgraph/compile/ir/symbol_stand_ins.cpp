// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/symbol_stand_ins.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "stepgraph/base/hash.h"

namespace stepgraph {
namespace {

/// The symbolic sizes of a module, each once, in the order of the walk.
class SizeWalk {
 public:
  explicit SizeWalk(const Module& module) : module_(module), entered_(module.graphs.size()) {}

  std::vector<Dim> run() {
    std::vector<const Entry*> entries;
    for (const Entry& entry : module_.entries) entries.push_back(&entry);
    std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) { return a->name < b->name; });
    for (const Entry* entry : entries) enter(entry->graph);
    // A gradient may call its composite: it follows, with what it brings itself.
    for (size_t i = 0; i < with_gradient_.size(); ++i) enter(*module_.graph(with_gradient_[i]).gradient);
    return std::move(sizes_);
  }

 private:
  void enter(GraphId id) {
    if (entered_[static_cast<size_t>(id.index)]) return;
    entered_[static_cast<size_t>(id.index)] = true;
    const Graph& graph = module_.graph(id);
    if (graph.gradient) with_gradient_.push_back(id);
    for (const GraphInput& input : graph.inputs) note(graph.type(input.value));
    std::vector<bool> opened(graph.nodes.size());
    for (const GraphOutput& output : graph.outputs) walk(graph, output.value, opened);
  }

  /// With a stack of its own: a flat graph is as deep as it is long.
  void walk(const Graph& graph, ValueId value, std::vector<bool>& opened) {
    std::vector<std::pair<size_t, size_t>> path;  // node, its next input
    const auto open = [&](ValueId id) {
      const int32_t node = graph.values[static_cast<size_t>(id.index)].node;
      if (node < 0 || opened[static_cast<size_t>(node)]) return;
      opened[static_cast<size_t>(node)] = true;
      path.emplace_back(static_cast<size_t>(node), 0);
    };
    open(value);
    while (!path.empty()) {
      const Node& node = graph.nodes[path.back().first];
      size_t& next = path.back().second;
      if (next < node.inputs.size()) {
        open(node.inputs[next++]);
        continue;
      }
      path.pop_back();
      note(graph, node);
    }
  }

  void note(const Graph& graph, const Node& node) {
    for_each_dim(node.op, [&](const Dim& dim) { note(dim); });
    for_each_field<Sharding>(node.op, [&](const Sharding& sharding) { note(sharding); });
    if (const auto* loop = std::get_if<Loop>(&node.op); loop != nullptr && !loop->symbol.empty()) note(Dim::symbol(loop->symbol));
    for (const GraphId called : called_graphs(node.op)) enter(called);
    for (const ValueId result : node.results) note(graph.type(result));
  }
  void note(const TensorType& type) {
    for (const Dim& dim : type.shape) note(dim);
    if (type.sharding) note(*type.sharding);
  }
  void note(const Sharding& sharding) {
    for (const DimSharding& dim : sharding.dims) note(dim.grain);
  }
  void note(const Dim& dim) {
    if (dim.is_constant() || !noted_.insert(dim).second) return;
    Dim size = module_.symbols.expand(dim);
    if (!size.is_constant() && known_.insert(size).second) sizes_.push_back(std::move(size));
  }

  const Module& module_;
  std::vector<bool> entered_;
  std::vector<GraphId> with_gradient_;
  std::set<Dim> noted_, known_;  ///< as they stand, and with derived symbols replaced
  std::vector<Dim> sizes_;
};

std::string declaration_text(const Symbol& symbol) {
  Hasher hasher;
  hasher.number(static_cast<int64_t>(symbol.kind)).number(symbol.minimum).number(symbol.maximum).number(symbol.multiple_of);
  for (const int64_t point : symbol.buckets) hasher.number(point);
  return "symbol_" + hasher.finish().text();
}

/// What all sizes say of one symbol, when others have their stand-ins.
Hash128 uses_of(const std::string& symbol, const std::vector<Dim>& sizes, const SymbolStandIns& stand_ins) {
  Hasher hasher;
  hasher.text(stand_ins.at(symbol));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<std::string> symbols = sizes[i].symbols();
    if (!std::binary_search(symbols.begin(), symbols.end(), symbol)) continue;
    hasher.number(static_cast<int64_t>(i));
    try {
      const Dim size = sizes[i].substitute([&](const std::string& name) -> std::optional<Dim> {
        if (name == symbol) return Dim::symbol("this");
        const auto other = stand_ins.find(name);
        return Dim::symbol(other == stand_ins.end() ? name : other->second);
      });
      hasher.text(size.text());
    } catch (const UserError&) {
      hasher.text("no size when symbols that are declared alike are one: as floordiv(n, a - b)");
    }
  }
  return hasher.finish();
}

}  // namespace

SymbolStandIns symbol_stand_ins(const Module& module) {
  SymbolStandIns stand_ins;
  for (const Symbol& symbol : module.symbols.all())
    if (symbol.kind != SymbolKind::Coordinate && symbol.kind != SymbolKind::Derived) stand_ins[symbol.name] = declaration_text(symbol);
  const std::vector<Dim> sizes = SizeWalk(module).run();
  std::set<std::string> numbered;
  for (const Dim& size : sizes) {
    std::vector<std::string> met = size.symbols();
    std::erase_if(met, [&](const std::string& name) { return stand_ins.count(name) == 0 || numbered.count(name) > 0; });
    while (!met.empty()) {
      auto first = met.begin();
      if (met.size() > 1) {
        std::vector<Hash128> uses;
        for (const std::string& name : met) uses.push_back(uses_of(name, sizes, stand_ins));
        first += std::min_element(uses.begin(), uses.end()) - uses.begin();
      }
      stand_ins[*first] += "_" + std::to_string(numbered.size());
      numbered.insert(*first);
      met.erase(first);
    }
  }
  return stand_ins;
}

}  // namespace stepgraph
