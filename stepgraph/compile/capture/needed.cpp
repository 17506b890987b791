// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/needed.h"

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

class NeededInliner {
 public:
  explicit NeededInliner(Builder& builder) : builder_(builder), table_(builder.module()) {}

  MaybeValues run(const Graph& graph, const MaybeValues& inputs, const std::vector<bool>& outputs) {
    const std::vector<bool> live = table_.live_values(graph, outputs);
    MaybeValues map(graph.values.size());
    for (size_t i = 0; i < graph.inputs.size(); ++i) map[at(graph.inputs[i].value)] = inputs[i];
    for (const Node& node : graph.nodes) {
      const std::vector<bool> wanted = marked(live, node.results);
      if (!any_marked(wanted)) continue;
      MaybeValues arguments;
      for (ValueId input : node.inputs) arguments.push_back(map[at(input)]);
      const Call* call = std::get_if<Call>(&node.op);
      // A call of which all is wanted may as well stay one.
      const bool is_partial = call && !(all_marked(wanted) && all_marked(table_.inputs_of(node, wanted)));
      const MaybeValues results = is_partial ? run(builder_.module().graph(call->graph), arguments, wanted) : copy(graph, node, arguments);
      for (size_t i = 0; i < results.size(); ++i) map[at(node.results[i])] = results[i];
    }
    MaybeValues values;
    for (size_t i = 0; i < graph.outputs.size(); ++i) values.push_back(outputs[i] ? map[at(graph.outputs[i].value)] : std::nullopt);
    return values;
  }

 private:
  MaybeValues copy(const Graph& graph, const Node& node, const MaybeValues& arguments) {
    std::vector<Value> present;
    for (const auto& argument : arguments) present.push_back(argument.value());
    std::vector<TensorType> types;
    for (ValueId result : node.results) types.push_back(graph.type(result));
    const std::vector<Value> results = builder_.append(node.op, present, std::move(types));
    return {results.begin(), results.end()};
  }

  Builder& builder_;
  NeededTable table_;
};

}  // namespace

std::vector<bool> needed_inputs(const Module& module, const Graph& graph, const std::vector<bool>& outputs) {
  return NeededTable(module).inputs_of(graph, outputs);
}

std::vector<std::optional<Value>> inline_needed(Builder& builder, const Graph& graph, const std::vector<std::optional<Value>>& inputs,
                                                const std::vector<bool>& outputs) {
  return NeededInliner(builder).run(graph, inputs, outputs);
}

}  // namespace stepgraph
