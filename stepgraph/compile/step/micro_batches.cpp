// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/micro_batches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/step/batch_factor.h"

namespace stepgraph {
namespace {

class DrawPlacer {
 public:
  DrawPlacer(Module& module, const std::string& batch, Dim iteration, int64_t micro_batches)
      : module_(module), analysis_(module, batch), iteration_(std::move(iteration)), micro_batches_(micro_batches) {}

  GraphId place(GraphId id, const BatchBorder& around) {
    if (const auto& gradient = module_.graph(id).gradient; gradient && draws(*gradient))
      throw UserError("micro-batches: the gradient of composite '" + module_.graph(id).composite + "' draws random numbers, whose place in the whole batch is not known");
    if (!draws(id)) return id;
    const auto key = std::make_pair(id, text(around));
    if (auto found = placed_.find(key); found != placed_.end()) return found->second;
    Graph copy = module_.graph(id);
    const std::vector<BatchFactors> values = analysis_.values(copy, around);
    std::vector<Node> nodes;
    bool changed = false;
    for (Node& node : copy.nodes) {
      if (auto placed = placed_draw(copy, node, values)) {
        changed = true;
        std::move(placed->begin(), placed->end(), std::back_inserter(nodes));
      } else {
        changed |= place_callees(node, values);
        nodes.push_back(std::move(node));
      }
    }
    if (!changed) return placed_[key] = id;
    copy.nodes = std::move(nodes);
    number_producers(copy);
    return placed_[key] = add(id, std::move(copy));
  }

 private:
  /// The copy as a graph of the module: calls in surroundings that differ only in what does not matter have one.
  GraphId add(GraphId original, Graph copy) {
    for (const auto& [key, known] : placed_)
      if (key.first == original && equal_graphs(module_.graph(known), copy)) return known;
    copy.name += "_micro_batch";
    const GraphId result = module_.add_graph(copy.name);
    module_.graph(result) = std::move(copy);
    return result;
  }

  /// Whether the graph or what it runs draws anything.
  bool draws(GraphId id) {
    if (const auto known = draws_.find(id); known != draws_.end()) return known->second;
    const std::vector<Node>& nodes = module_.graph(id).nodes;
    const bool found = std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
      const std::vector<GraphId> callees = called_graphs(node.op);
      return draw_place(node.op) || std::any_of(callees.begin(), callees.end(), [&](GraphId callee) { return draws(callee); });
    });
    return draws_[id] = found;
  }

  bool place_callees(Node& node, const std::vector<BatchFactors>& values) {
    const std::vector<GraphId> callees = called_graphs(node.op);
    if (callees.empty() || std::holds_alternative<MapTensors>(node.op)) return false;
    const Loop* loop = std::get_if<Loop>(&node.op);
    if (loop && analysis_.has_batch(loop->trip_count) && draws(callees[0]))
      throw UserError(
          "micro-batches: a loop of " + loop->trip_count.text() + " iterations draws random numbers, which would be others than those of the whole batch",
          node.place);
    const GraphId placed = place(callees[0], BatchFactorAnalysis::around_callee(node, values));
    if (placed == callees[0]) return false;
    std::vector<GraphId> map(module_.graphs.size());
    for (size_t i = 0; i < map.size(); ++i) map[i] = {static_cast<int32_t>(i)};
    map[at(callees[0])] = placed;
    node.op = renumber_graphs(node.op, map);
    return true;
  }

  /// The nodes that stand for a draw that has the batch in its dims; nothing for other nodes.
  std::optional<std::vector<Node>> placed_draw(Graph& graph, const Node& node, const std::vector<BatchFactors>& values) {
    const DrawPlace* draw = draw_place(node.op);
    if (!draw) return std::nullopt;
    const Shape& shape = draw->global_shape;
    const BatchFactors& factors = values[at(node.results.at(0))];
    DrawPlace placed;
    bool changed = false;
    for (size_t d = 0; d < shape.size(); ++d) {
      const bool has_batch = analysis_.has_batch(shape[d]);
      const Dim before = has_batch ? in_front_of_batch(node, shape, d, factors) : Dim(1);
      if (before != Dim(1)) placed.global_shape.push_back(before), placed.starts.emplace_back(0);
      const Dim rest = before == Dim(1) ? shape[d] : *exact_quotient(shape[d], before);
      placed.global_shape.push_back(has_batch ? rest * micro_batches_ : rest);
      placed.starts.push_back(has_batch ? iteration_ * rest : draw->starts[d]);
      changed |= has_batch;
    }
    if (!changed) return std::nullopt;
    if (placed.starts.size() == shape.size()) {
      Node same = node;
      *draw_place(same.op) = std::move(placed);
      return std::vector<Node>{std::move(same)};
    }
    return drawn_apart(graph, node, std::move(placed));
  }

  /// The product of the factors in front of the batch in dim d of a draw.
  Dim in_front_of_batch(const Node& node, const Shape& shape, size_t d, const BatchFactors& factors) const {
    const std::string what = "random numbers of shape " + text(shape) + " cannot be drawn by micro-batches: ";
    if (draw_place(node.op)->starts[d] != Dim(0)) throw UserError(what + "they are a part of a larger draw already", node.place);
    const std::optional<Dim> beside = analysis_.beside_batch(shape[d]);
    if (!beside) throw UserError(what + "dim " + std::to_string(d) + " is not a multiple of " + analysis_.batch(), node.place);
    if (*beside == Dim(1)) return 1;
    const std::optional<Dim> before = d < factors.size() ? factors[d] : std::nullopt;
    if (!before || !exact_quotient(*beside, *before))
      throw UserError(what + "it is not known where " + analysis_.batch() + " lies in dim " + std::to_string(d) + "; wanted a dim of its own", node.place);
    return *before;
  }

  /// The draw with more dims, and a reshape to those that it had.
  std::vector<Node> drawn_apart(Graph& graph, const Node& node, DrawPlace placed) const {
    const auto* random = std::get_if<Random>(&node.op);
    if (!random)
      throw UserError(std::string(name(node.op)) + " cannot draw by micro-batches: the batch is not the outermost factor of a dim of " +
                          text(draw_place(node.op)->global_shape),
                      node.place);
    Node draw = node, back = node;
    Random op = *random;
    op.shape.clear();
    for (const Dim& dim : placed.global_shape) op.shape.push_back(analysis_.has_batch(dim) ? *exact_quotient(dim, Dim(micro_batches_)) : dim);
    op.place = std::move(placed);
    const ValueId apart{static_cast<int32_t>(graph.values.size())};
    graph.values.push_back({{op.dtype, op.shape, {}}, -1});
    draw.op = std::move(op);
    draw.results = {apart};
    back.op = Reshape{random->shape};
    back.inputs = {apart};
    return {std::move(draw), std::move(back)};
  }

  Module& module_;
  BatchFactorAnalysis analysis_;
  Dim iteration_;
  int64_t micro_batches_;
  std::map<std::pair<GraphId, std::string>, GraphId> placed_;
  std::map<GraphId, bool> draws_;
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
  return DrawPlacer(module, *batch, Dim::symbol(iteration), micro_batches).place(graph, {});
}

}  // namespace stepgraph
