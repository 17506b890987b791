// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "stepgraph/compile/lower/map_form.h"
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {
namespace {

constexpr size_t operations_max = 24, leaves_max = 8;

class Recompute {
 public:
  Recompute(const SymbolTable& symbols, Graph& graph) : symbols_(symbols), graph_(graph) {}

  void run() {
    find_depths();
    find_uses();
    decide();
    rebuild();
  }

 private:
  ElementKind kind(const Node& node) const { return op_info(node.op).element_kind; }
  bool is_view(const Node& node) const { return kind(node) == ElementKind::View; }
  bool is_call(const Node& node) const { return !is_view(node) && !can_emit_node(graph_, node); }
  const Node* producer(ValueId value) const {
    const int32_t node = graph_.values[at(value)].node;
    return node < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(node)];
  }
  int depth_of(ValueId value) const {
    const int32_t node = graph_.values[at(value)].node;
    return node < 0 ? 0 : depth_[static_cast<size_t>(node)];
  }

  /// Calls before a node, as fusion counts them.
  void find_depths() {
    depth_.assign(graph_.nodes.size(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (const ValueId input : graph_.nodes[i].inputs)
        if (const Node* before = producer(input)) depth_[i] = std::max(depth_[i], depth_of(input) + (is_call(*before) ? 1 : 0));
  }

  /// Through views: the deepest node that reads a value, and whether something wants it in memory.
  void find_uses() {
    last_use_.assign(graph_.values.size(), -1);
    in_memory_.assign(graph_.values.size(), 0);
    for (const GraphOutput& output : graph_.outputs) in_memory_[at(output.value)] = 1;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      for (const ValueId input : node.inputs) {
        int& last = last_use_[at(input)];
        if (is_view(node)) {
          last = std::max(last, last_use_[at(node.results[0])]);
          in_memory_[at(input)] = in_memory_[at(input)] || in_memory_[at(node.results[0])];
        } else {
          last = std::max(last, depth_[i]);
          in_memory_[at(input)] = in_memory_[at(input)] || is_call(node);
        }
      }
    }
  }

  double bytes(ValueId value) const {
    double count = 1;
    for (const Dim& dim : graph_.type(value).shape) {
      const int64_t most = symbols_.bounds(dim).maximum;
      count *= dim.is_constant() ? static_cast<double>(dim.constant()) : most == INT64_MAX ? 1024 : static_cast<double>(most);
    }
    return count * static_cast<double>(size_bytes(graph_.type(value).dtype));
  }

  /// What a value is made of, down to what is kept.
  struct Recipe {
    std::set<ValueId> leaves;
    std::set<int32_t> operations;
    bool too_long = false;
  };
  void collect(ValueId value, Recipe& recipe, bool is_root) const {
    const Node* node = producer(value);
    if (node == nullptr || (!is_root && !is_view(*node) && !again_[at(value)])) {
      if (!is_root) recipe.leaves.insert(value);
      recipe.too_long = recipe.too_long || recipe.leaves.size() > leaves_max;
      return;
    }
    const int32_t index = graph_.values[at(value)].node;
    if (!is_view(*node) && !recipe.operations.insert(index).second) return;
    recipe.too_long = recipe.too_long || recipe.operations.size() > operations_max;
    for (const ValueId input : node->inputs)
      if (!recipe.too_long) collect(input, recipe, false);
  }

  void decide() {
    again_.assign(graph_.values.size(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (kind(node) != ElementKind::Pointwise || is_call(node) || std::holds_alternative<Random>(node.op)) continue;
      const ValueId value = node.results[0];
      if (in_memory_[at(value)] || last_use_[at(value)] <= depth_[i]) continue;
      Recipe recipe;
      collect(value, recipe, true);
      if (recipe.too_long) continue;
      double more = 0;
      for (const ValueId leaf : recipe.leaves)
        if (producer(leaf) != nullptr && last_use_[at(leaf)] < last_use_[at(value)]) more += bytes(leaf);
      if (more >= bytes(value)) continue;
      again_[at(value)] = 1;
      for (const ValueId leaf : recipe.leaves) last_use_[at(leaf)] = std::max(last_use_[at(leaf)], last_use_[at(value)]);
    }
  }

  ValueId clone(ValueId value, int depth) {
    const Node* node = producer(value);
    if (node == nullptr || depth_of(value) >= depth || (!is_view(*node) && !again_[at(value)])) return value;
    const auto known = clones_.find({value, depth});
    if (known != clones_.end()) return known->second;
    Node copy = *node;
    bool changed = !is_view(*node);
    for (ValueId& input : copy.inputs) {
      const ValueId other = clone(input, depth);
      changed = changed || other != input;
      input = other;
    }
    ValueId result = value;
    if (changed) {
      const auto which = static_cast<size_t>(std::find(copy.results.begin(), copy.results.end(), value) - copy.results.begin());
      for (ValueId& own : copy.results) {
        graph_.values.push_back({graph_.type(own), -1});
        own = {static_cast<int32_t>(graph_.values.size()) - 1};
      }
      result = copy.results[which];
      nodes_.push_back(std::move(copy));
    }
    clones_[{value, depth}] = result;
    return result;
  }

  void rebuild() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node node = graph_.nodes[i];
      if (!is_view(node) && !is_call(node))
        for (ValueId& input : node.inputs) input = clone(input, depth_[i]);
      nodes_.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes_);
    number_producers(graph_);
    remove_dead_nodes(graph_);
  }

  const SymbolTable& symbols_;
  Graph& graph_;
  std::vector<int> depth_;      // by node
  std::vector<int> last_use_;   // by value
  std::vector<char> in_memory_, again_;
  std::vector<Node> nodes_;
  std::map<std::pair<ValueId, int>, ValueId> clones_;
};

}  // namespace

Module recompute_cheap(Module flat) {
  for (const Entry& entry : flat.entries) Recompute(flat.symbols, flat.graph(entry.graph)).run();
  return flat;
}

}  // namespace stepgraph
