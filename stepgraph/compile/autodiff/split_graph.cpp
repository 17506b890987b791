// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/autodiff/split_graph.h"

#include <algorithm>

namespace stepgraph {
namespace {

/// Copies chosen nodes, in order, into a graph of their own.
Graph extract(const Graph& source, const std::vector<bool>& chosen, const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs) {
  Graph graph;
  std::vector<ValueId> map(source.values.size());
  auto define = [&](ValueId id, int32_t node) {
    map[at(id)] = {static_cast<int32_t>(graph.values.size())};
    graph.values.push_back({source.type(id), node});
    return map[at(id)];
  };
  for (ValueId input : inputs) graph.inputs.push_back({define(input, -1), {}});
  for (size_t n = 0; n < source.nodes.size(); ++n) {
    if (!chosen[n]) continue;
    Node node = source.nodes[n];
    for (ValueId& input : node.inputs) {
      SG_CHECK(map[at(input)].index >= 0, "split_graph: a value is read that does not cross");
      input = map[at(input)];
    }
    for (ValueId& result : node.results) result = define(result, static_cast<int32_t>(graph.nodes.size()));
    graph.nodes.push_back(std::move(node));
  }
  for (ValueId output : outputs) {
    SG_CHECK(map[at(output)].index >= 0, "split_graph: an output does not cross");
    graph.outputs.push_back({map[at(output)], {}});
  }
  return graph;
}

class Splitter {
 public:
  Splitter(const Graph& combined, size_t forward_nodes) : graph_(combined), forward_nodes_(forward_nodes), chosen_(combined.nodes.size()) {
    // Cheap: constants, and broadcasts of them.
    cheap_.resize(combined.nodes.size());
    for (size_t n = 0; n < forward_nodes; ++n) {
      const Node& node = combined.nodes[n];
      const bool source = std::holds_alternative<Constant>(node.op) || std::holds_alternative<Iota>(node.op) || std::holds_alternative<SizeValue>(node.op);
      cheap_[n] = source || (std::holds_alternative<Broadcast>(node.op) && is_cheap(node.inputs[0]));
    }
  }

  /// Chooses the backward nodes that `outputs` need; returns the forward values that they read, each once, in order of id.
  std::vector<ValueId> choose(const std::vector<ValueId>& outputs) {
    std::vector<bool> read(graph_.values.size());
    std::vector<ValueId> crossing;
    auto need = [&](ValueId id) {
      if (read[at(id)]) return;
      read[at(id)] = true;
      const int32_t node = graph_.values[at(id)].node;
      if (node >= 0 && (static_cast<size_t>(node) >= forward_nodes_ || cheap_[static_cast<size_t>(node)]))
        chosen_[static_cast<size_t>(node)] = true;
      else
        crossing.push_back(id);
    };
    for (ValueId output : outputs) need(output);
    for (size_t n = graph_.nodes.size(); n-- > 0;)
      if (chosen_[n])
        for (ValueId input : graph_.nodes[n].inputs) need(input);
    std::sort(crossing.begin(), crossing.end());
    return crossing;
  }
  const std::vector<bool>& chosen() const { return chosen_; }

 private:
  bool is_cheap(ValueId id) const {
    const int32_t node = graph_.values[at(id)].node;
    return node >= 0 && cheap_[static_cast<size_t>(node)];
  }
  const Graph& graph_;
  size_t forward_nodes_;
  std::vector<bool> chosen_, cheap_;
};

}  // namespace

SplitGraph split_graph(const Graph& combined, size_t forward_nodes, const std::vector<ValueId>& forward_inputs, const std::vector<ValueId>& forward_outputs,
                       const std::vector<ValueId>& gradient_inputs, const std::vector<ValueId>& backward_outputs, const std::vector<bool>& save_inputs) {
  Splitter splitter(combined, forward_nodes);
  SplitGraph split;
  // By value: it comes from the backward part's caller, or the backward part has it without its being saved.
  std::vector<bool> is_gradient(combined.values.size()), is_at_hand(combined.values.size());
  for (ValueId value : gradient_inputs) is_gradient[at(value)] = true;
  if (save_inputs.empty())
    for (ValueId value : forward_outputs) is_at_hand[at(value)] = true;
  for (size_t i = 0; i < forward_inputs.size(); ++i)
    if (i >= save_inputs.size() || !save_inputs[i]) is_at_hand[at(forward_inputs[i])] = true;
  for (ValueId value : splitter.choose(backward_outputs)) {
    if (is_gradient[at(value)]) continue;
    split.backward_inputs.push_back(value);
    if (!is_at_hand[at(value)]) split.saved.push_back(value);
  }
  std::vector<bool> forward_part(combined.nodes.size());
  std::fill(forward_part.begin(), forward_part.begin() + static_cast<std::ptrdiff_t>(forward_nodes), true);
  std::vector<ValueId> outputs = forward_outputs;
  outputs.insert(outputs.end(), split.saved.begin(), split.saved.end());
  split.forward = extract(combined, forward_part, forward_inputs, outputs);
  for (size_t i = forward_outputs.size(); i < outputs.size(); ++i) split.forward.outputs[i].role.kind = RoleKind::Saved;
  split.backward_inputs.insert(split.backward_inputs.end(), gradient_inputs.begin(), gradient_inputs.end());
  split.backward = extract(combined, splitter.chosen(), split.backward_inputs, backward_outputs);
  remove_dead_nodes(split.forward);
  return split;
}

}  // namespace stepgraph
