// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/autodiff/needed.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stepgraph {
namespace {

bool any_marked(const std::vector<bool>& marks) { return std::find(marks.begin(), marks.end(), true) != marks.end(); }
bool all_marked(const std::vector<bool>& marks) { return std::find(marks.begin(), marks.end(), false) == marks.end(); }

std::vector<bool> marked(const std::vector<bool>& live, const std::vector<ValueId>& values) {
  std::vector<bool> marks;
  for (ValueId value : values) marks.push_back(live[at(value)]);
  return marks;
}

/// What is needed of graphs, each asked once for the same outputs: layers may call layers.
class NeededTable {
 public:
  explicit NeededTable(const Module& module) : module_(module) {}

  /// By value: whether the marked outputs depend on it.
  std::vector<bool> live_values(const Graph& graph, const std::vector<bool>& outputs) {
    std::vector<bool> live(graph.values.size());
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      if (outputs[i]) live[at(graph.outputs[i].value)] = true;
    for (size_t n = graph.nodes.size(); n-- > 0;) {
      const Node& node = graph.nodes[n];
      const std::vector<bool> results = marked(live, node.results);
      if (!any_marked(results)) continue;
      const std::vector<bool> inputs = inputs_of(node, results);
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (inputs[i]) live[at(node.inputs[i])] = true;
    }
    return live;
  }

  std::vector<bool> inputs_of(const Graph& graph, const std::vector<bool>& outputs) {
    const std::vector<bool> live = live_values(graph, outputs);
    std::vector<bool> needed;
    for (const GraphInput& input : graph.inputs) needed.push_back(live[at(input.value)]);
    return needed;
  }
  std::vector<bool> inputs_of(const Node& node, const std::vector<bool>& results) {
    const Call* call = std::get_if<Call>(&node.op);
    if (!call) return std::vector<bool>(node.inputs.size(), true);
    const auto key = std::make_pair(call->graph, results);
    const auto found = known_.find(key);
    return found != known_.end() ? found->second : known_[key] = inputs_of(module_.graph(call->graph), results);
  }

 private:
  const Module& module_;
  std::map<std::pair<GraphId, std::vector<bool>>, std::vector<bool>> known_;
};

using MaybeValues = std::vector<std::optional<Value>>;

/// Copies what is needed of graphs. A call of which a part is needed becomes a call of a graph that holds this part, made once however often it is called.
class NeededCopier {
 public:
  explicit NeededCopier(Module& module) : module_(module), table_(module) {}

  MaybeValues copy(Builder& builder, const Graph& graph, const MaybeValues& inputs, const std::vector<bool>& outputs) {
    const std::vector<bool> live = table_.live_values(graph, outputs);
    MaybeValues map(graph.values.size());
    for (size_t i = 0; i < graph.inputs.size(); ++i) map[at(graph.inputs[i].value)] = inputs[i];
    for (const Node& node : graph.nodes) {
      const std::vector<bool> wanted = marked(live, node.results);
      if (any_marked(wanted)) copy(builder, graph, node, wanted, map);
    }
    MaybeValues values;
    for (size_t i = 0; i < graph.outputs.size(); ++i) values.push_back(outputs[i] ? map[at(graph.outputs[i].value)] : std::nullopt);
    return values;
  }

 private:
  void copy(Builder& builder, const Graph& graph, const Node& node, const std::vector<bool>& wanted, MaybeValues& map) {
    const std::vector<bool> needed = table_.inputs_of(node, wanted);
    Op op = node.op;
    if (Call* call = std::get_if<Call>(&op); call && !(all_marked(wanted) && all_marked(needed))) call->graph = part(call->graph, wanted, needed);
    const bool is_whole = op == node.op;
    std::vector<Value> arguments;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (needed[i]) arguments.push_back(map[at(node.inputs[i])].value());
    std::vector<ValueId> made;
    std::vector<TensorType> types;
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (!is_whole && !wanted[i]) continue;
      made.push_back(node.results[i]);
      types.push_back(graph.type(node.results[i]));
    }
    const Provenance around = builder.provenance();
    builder.set_provenance(Provenance::of(node, around));
    const std::vector<Value> results = builder.append(std::move(op), arguments, std::move(types));
    builder.set_provenance(around);
    for (size_t i = 0; i < results.size(); ++i) map[at(made[i])] = results[i];
  }

  GraphId part(GraphId whole, const std::vector<bool>& wanted, const std::vector<bool>& needed) {
    const auto key = std::make_pair(whole, wanted);
    if (const auto found = parts_.find(key); found != parts_.end()) return found->second;
    const Graph& graph = module_.graph(whole);
    const GraphId id = module_.add_graph(graph.name + "_part");
    Builder builder(module_, id);
    MaybeValues inputs;
    for (size_t i = 0; i < needed.size(); ++i) {
      const ValueId input = graph.inputs[i].value;
      inputs.push_back(needed[i] ? std::optional(builder.input(graph.type(input))) : std::nullopt);
    }
    for (const std::optional<Value>& output : copy(builder, graph, inputs, wanted))
      if (output) builder.output(*output);
    return parts_[key] = id;
  }

  Module& module_;
  NeededTable table_;
  std::map<std::pair<GraphId, std::vector<bool>>, GraphId> parts_;
};

}  // namespace

std::vector<bool> needed_inputs(const Module& module, const Graph& graph, const std::vector<bool>& outputs) {
  return NeededTable(module).inputs_of(graph, outputs);
}

std::vector<std::optional<Value>> copy_needed(Builder& builder, const Graph& graph, const std::vector<std::optional<Value>>& inputs,
                                              const std::vector<bool>& outputs) {
  return NeededCopier(builder.module()).copy(builder, graph, inputs, outputs);
}

}  // namespace stepgraph
