// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/micro_batches.h"

#include <algorithm>
#include <map>

namespace stepgraph {
namespace {

class RandomPlacer {
 public:
  RandomPlacer(Module& module, std::string batch, Dim iteration, int64_t micro_batches)
      : module_(module), batch_(std::move(batch)), iteration_(std::move(iteration)), micro_batches_(micro_batches) {}

  GraphId place(GraphId id) {
    if (auto found = placed_.find(id); found != placed_.end()) return found->second;
    Graph copy = module_.graph(id);
    bool changed = false;
    for (Node& node : copy.nodes) {
      if (Random* random = std::get_if<Random>(&node.op)) changed |= place(*random, node.place);
      const std::vector<GraphId> callees = called_graphs(node.op);
      if (callees.empty()) continue;
      std::vector<GraphId> map(module_.graphs.size());
      for (size_t i = 0; i < map.size(); ++i) map[i] = {static_cast<int32_t>(i)};
      for (GraphId callee : callees) map[static_cast<size_t>(callee.index)] = place(callee);
      Op renumbered = renumber_graphs(node.op, map);
      changed |= !(renumbered == node.op);
      node.op = std::move(renumbered);
    }
    GraphId result = id;
    if (changed) {
      result = module_.add_graph(copy.name + "_micro_batch");
      copy.name = module_.graph(result).name;
      module_.graph(result) = std::move(copy);
    }
    placed_[id] = result;
    return result;
  }

 private:
  bool place(Random& random, const SourcePlace& where) {
    bool changed = false;
    for (size_t d = 0; d < random.shape.size(); ++d) {
      const Dim dim = random.shape[d];
      const std::vector<std::string> symbols = dim.symbols();
      if (std::find(symbols.begin(), symbols.end(), batch_) == symbols.end()) continue;
      if (!exact_quotient(dim, Dim::symbol(batch_)))
        throw UserError("random numbers of shape " + text(random.shape) + " cannot be drawn by micro-batches: a dim is not a multiple of " + batch_, where);
      random.global_shape[d] = dim * micro_batches_;
      random.starts[d] = iteration_ * dim;
      changed = true;
    }
    return changed;
  }

  Module& module_;
  std::string batch_;
  Dim iteration_;
  int64_t micro_batches_;
  std::map<GraphId, GraphId> placed_;
};

}  // namespace

GraphId place_random_numbers(Module& module, GraphId graph, const std::string& iteration, int64_t micro_batches) {
  std::optional<std::string> batch;
  for (const GraphInput& input : module.graph(graph).inputs) {
    if (input.role.kind != RoleKind::Batch) continue;
    const TensorType& type = module.graph(graph).type(input.value);
    const std::optional<std::string> symbol = type.shape.empty() ? std::nullopt : type.shape[0].symbol_name();
    if (!symbol) throw UserError("micro-batches: batch input " + input.role.name + " is " + text(type) + ", wanted a symbol as its first dim");
    if (batch && *batch != *symbol) throw UserError("micro-batches: batch inputs have different first dims, " + *batch + " and " + *symbol);
    batch = symbol;
  }
  if (!batch) throw UserError("micro-batches: the model has no batch inputs");
  return RandomPlacer(module, *batch, Dim::symbol(iteration), micro_batches).place(graph);
}

}  // namespace stepgraph
