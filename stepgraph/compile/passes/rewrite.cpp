// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/rewrite.h"

#include <algorithm>
#include <utility>

namespace stepgraph {
namespace {

constexpr int rewrite_rounds_max = 4;  // a rewrite that makes room for another does so for one or two

/// Reads of each value of a graph, and the node that alone reads it.
struct Readers {
  std::vector<int32_t> uses, only_node;

  explicit Readers(const Graph& graph) : uses(graph.values.size(), 0), only_node(graph.values.size(), -1) {
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (const ValueId input : graph.nodes[n].inputs) only_node[at(input)] = ++uses[at(input)] == 1 ? static_cast<int32_t>(n) : -1;
    for (const GraphOutput& output : graph.outputs) ++uses[at(output.value)], only_node[at(output.value)] = -1;
  }
};

class GraphRewriter {
 public:
  /// Takes the graph's nodes away and fills it again.
  GraphRewriter(Module& module, GraphId id, std::span<const Rewrite> rewrites)
      : rewrites_(rewrites), source_(std::move(module.graph(id))), readers_(source_), builder_(module, id) {
    Graph& graph = module.graph(id);
    graph = Graph();
    graph.name = source_.name;
    graph.composite = source_.composite;
    graph.gradient = source_.gradient;
  }

  /// Whether anything was rewritten.
  bool run() {
    std::vector<Value> map(source_.values.size());
    const auto define = [&](ValueId from, Value to) {
      map[at(from)] = to;
      if (to.builder == nullptr) return;
      uses_.resize(builder_.graph().values.size(), 0);
      uses_[at(to.id)] += readers_.uses[at(from)];
    };
    for (const GraphInput& input : source_.inputs) define(input.value, builder_.input(source_.type(input.value), input.role));
    bool any = false;
    for (Node& node : source_.nodes) {
      std::vector<Value> inputs;
      inputs.reserve(node.inputs.size());
      for (const ValueId input : node.inputs) inputs.push_back(map[at(input)]);
      std::vector<TensorType> types;
      types.reserve(node.results.size());
      for (const ValueId result : node.results) types.push_back(std::move(source_.values[at(result)].type));
      builder_.set_provenance({std::move(node.place), std::move(node.scope), node.phase});
      const size_t first_new = builder_.graph().values.size();
      std::optional<std::vector<Value>> results = rewritten(node, inputs, types);
      any |= results.has_value();
      if (results)
        keep_types(*results, types, first_new);
      else
        results = builder_.append(std::move(node.op), inputs, std::move(types));
      for (size_t i = 0; i < node.results.size(); ++i) define(node.results[i], results->at(i));
      note_gathers();
    }
    for (const GraphOutput& output : source_.outputs) builder_.output(map[at(output.value)], output.role);
    remove_dead_nodes(builder_.graph());
    return any;
  }

 private:
  std::optional<std::vector<Value>> rewritten(const Node& node, std::span<const Value> inputs, std::span<const TensorType> types) {
    uses_.resize(builder_.graph().values.size(), 0);
    const int32_t reader = node.results.empty() ? -1 : readers_.only_node[at(node.results[0])];
    const Op* only_user = reader < 0 ? nullptr : &source_.nodes[static_cast<size_t>(reader)].op;
    std::vector<int32_t> result_uses;
    for (const ValueId result : node.results) result_uses.push_back(readers_.uses[at(result)]);
    for (const Rewrite rewrite : rewrites_)
      if (auto results = rewrite({builder_, node.op, inputs, types, uses_, result_uses, only_user, gathered_})) return results;
    return std::nullopt;
  }
  /// What stands for a value keeps its size by name, and the record of its layout; a value that was there before has its own.
  void keep_types(std::span<const Value> results, std::span<const TensorType> types, size_t first_new) {
    SG_CHECK(results.size() == types.size(), "a rewrite gives another number of results");
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].builder == nullptr) continue;
      TensorType& type = builder_.graph().values[at(results[i].id)].type;
      SG_CHECK(type.dtype == types[i].dtype && type.rank() == types[i].rank(), "a rewrite gives " + text(type) + " for " + text(types[i]));
      if (at(results[i].id) >= first_new || !type.sharding) type = types[i];
    }
  }
  void note_gathers() {
    const Graph& graph = builder_.graph();
    for (; noted_ < graph.nodes.size(); ++noted_) {
      const Node& node = graph.nodes[noted_];
      if (const auto* gather = std::get_if<Gather>(&node.op))
        gathered_.emplace(node.inputs[1].index, graph.type(node.inputs[0]).shape[static_cast<size_t>(gather->dim)]);
    }
  }

  std::span<const Rewrite> rewrites_;
  Graph source_;
  Readers readers_;
  Builder builder_;
  std::vector<int32_t> uses_;
  std::unordered_multimap<int32_t, Dim> gathered_;  // looked up only, never iterated
  size_t noted_ = 0;
};

}  // namespace

const Node* NodeRewrite::producer(Value value) const {
  const Graph& graph = builder.graph();
  const int32_t node = graph.values[at(value.id)].node;
  return node < 0 ? nullptr : &graph.nodes[static_cast<size_t>(node)];
}

Module rewrite_nodes(Module module, std::span<const Rewrite> rewrites, bool (*concerns)(const Op&)) {
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    const std::vector<Node>& nodes = module.graphs[g].nodes;
    if (concerns != nullptr && std::none_of(nodes.begin(), nodes.end(), [&](const Node& node) { return concerns(node.op); })) continue;
    remove_dead_nodes(module.graphs[g]);
    for (int round = 0; round < rewrite_rounds_max; ++round)
      if (!GraphRewriter(module, {static_cast<int32_t>(g)}, rewrites).run()) break;
  }
  return module;
}

bool is_per_element(const Op& op) {
  return std::holds_alternative<Unary>(op) || std::holds_alternative<Polygamma>(op) || std::holds_alternative<Binary>(op) ||
         std::holds_alternative<Compare>(op) || std::holds_alternative<Select>(op) || std::holds_alternative<Convert>(op);
}

}  // namespace stepgraph
