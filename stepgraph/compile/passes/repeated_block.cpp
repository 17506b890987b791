// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/repeated_block.h"

#include <algorithm>
#include <map>
#include <optional>

namespace stepgraph {
namespace {

/// Bytes from which a constant that all blocks share is handed in rather than made inside.
constexpr size_t large_constant = 256;

/// The first `count` components of a scope.
std::string first_components(const std::string& scope, size_t count) {
  size_t end = 0;
  for (size_t i = 0; i < count; ++i) end = std::min(scope.find('.', end + (i > 0 ? 1 : 0)), scope.size());
  return scope.substr(0, end);
}

/// "h" of "h.3", "layers.encoder_layer" of "layers.encoder_layer_3".
std::string without_number(const std::string& scope) {
  size_t end = scope.size();
  while (end > 0 && scope[end - 1] >= '0' && scope[end - 1] <= '9') --end;
  if (end == scope.size()) return scope;
  if (end == 0) return "";
  return scope[end - 1] == '.' || scope[end - 1] == '_' ? scope.substr(0, end - 1) : scope;
}

class Outline {
 public:
  Outline(const Graph& graph, const BlockSequence& sequence, const BlockGroup& group, GraphClasses& classes)
      : graph_(graph), sequence_(sequence), group_(group), classes_(classes), inside_(graph.values.size()) {
    made_.calls.resize(group.count);
  }

  OutlinedBlocks run() {
    for (size_t i = 0; i < group_.count; ++i) made_.calls[i].scope = scope_of(i);
    for (size_t j = 0; j < group_.period; ++j) bind_operands(j);
    for (size_t j = 0; j < group_.period; ++j) append(j);
    place_results();
    const std::string name = without_number(made_.calls[0].scope);
    made_.body.name = name.empty() ? "block" : name;
    return std::move(made_);
  }

 private:
  size_t node_index(size_t block, size_t j) const { return sequence_.nodes[group_.start + block * group_.period + j]; }
  const Node& node(size_t block, size_t j) const { return graph_.nodes[node_index(block, j)]; }
  const Node* producer(ValueId value) const {
    const int32_t index = graph_.values[static_cast<size_t>(value.index)].node;
    return index < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(index)];
  }
  bool is_internal(ValueId value) const {
    const int32_t index = graph_.values[static_cast<size_t>(value.index)].node;
    if (index < 0) return false;
    const size_t place = sequence_.place[static_cast<size_t>(index)];
    return place != BlockSequence::none && place >= group_.start;  // the first block's nodes read nothing behind them
  }

  std::string scope_of(size_t block) const {
    const std::string& first = node(block, 0).scope;
    size_t common = common_scope(first, first);
    for (size_t j = 1; j < group_.period; ++j) common = std::min(common, common_scope(first, node(block, j).scope));
    return first_components(first, common);
  }

  ValueId add_value(const TensorType& type, int32_t made_by) {
    made_.body.values.push_back({type, made_by});
    return {static_cast<int32_t>(made_.body.values.size()) - 1};
  }

  /// What node j reads from outside: an argument, or a source that every block has alike.
  void bind_operands(size_t j) {
    const Node& first = node(0, j);
    for (size_t operand = 0; operand < first.inputs.size(); ++operand) {
      if (is_internal(first.inputs[operand])) continue;
      std::vector<ValueId> values;
      for (size_t i = 0; i < group_.count; ++i) values.push_back(node(i, j).inputs[operand]);
      if (is_made_inside(values)) continue;
      const auto [known, is_new] = arguments_.emplace(values, ValueId{});
      if (is_new) {
        known->second = add_value(graph_.type(values[0]), -1);
        made_.body.inputs.push_back({known->second, {}});
        for (size_t i = 0; i < group_.count; ++i) made_.calls[i].arguments.push_back(values[i]);
      }
      bound_[{j, operand}] = known->second;
    }
  }

  bool is_made_inside(const std::vector<ValueId>& values) {
    const Node* first = producer(values[0]);
    if (!first || !is_source(first->op)) return false;
    const bool is_shared = std::all_of(values.begin(), values.end(), [&](ValueId value) { return value == values[0]; });
    const auto* constant = std::get_if<Constant>(&first->op);
    if (is_shared) return !constant || constant->value.byte_count() < large_constant;
    return std::all_of(values.begin(), values.end(), [&](ValueId value) {
      const Node* other = producer(value);
      return other && is_source(other->op) && classes_.same(first->op, other->op);
    });
  }

  ValueId inside(ValueId value) {
    std::optional<ValueId>& slot = inside_[static_cast<size_t>(value.index)];
    if (!slot) copy(*producer(value));  // a source, made where it is first read
    return *slot;
  }

  void copy(const Node& node) { copy(node, {}); }
  void copy(const Node& node, std::vector<ValueId> inputs) {
    Node made = node;
    made.inputs = std::move(inputs);
    made.phase = Phase::None;  // the call has it
    const std::string& outer = made_.calls[0].scope;
    if (!outer.empty() && (made.scope + ".").starts_with(outer + ".")) made.scope.erase(0, outer.size() + 1);
    for (ValueId& result : made.results) {
      const ValueId fresh = add_value(graph_.type(result), static_cast<int32_t>(made_.body.nodes.size()));
      inside_[static_cast<size_t>(result.index)] = fresh;
      result = fresh;
    }
    made_.body.nodes.push_back(std::move(made));
  }

  void append(size_t j) {
    const Node& first = node(0, j);
    std::vector<ValueId> inputs;
    for (size_t operand = 0; operand < first.inputs.size(); ++operand) {
      const auto argument = bound_.find({j, operand});
      inputs.push_back(argument != bound_.end() ? argument->second : inside(first.inputs[operand]));
    }
    copy(first, std::move(inputs));
  }

  /// Values that are read behind their block, in any of the blocks.
  void place_results() {
    for (size_t j = 0; j < group_.period; ++j) {
      for (size_t result = 0; result < node(0, j).results.size(); ++result) {
        bool is_read = false;
        for (size_t i = 0; i < group_.count; ++i)
          is_read |= sequence_.last_user[static_cast<size_t>(node(i, j).results[result].index)] >= group_.start + (i + 1) * group_.period;
        if (!is_read) continue;
        made_.body.outputs.push_back({*inside_[static_cast<size_t>(node(0, j).results[result].index)], {}});
        for (size_t i = 0; i < group_.count; ++i) made_.calls[i].results.push_back(node(i, j).results[result]);
      }
    }
  }

  const Graph& graph_;
  const BlockSequence& sequence_;
  const BlockGroup& group_;
  GraphClasses& classes_;
  OutlinedBlocks made_;
  std::vector<std::optional<ValueId>> inside_;             // by value of the first block, and by source that it reads
  std::map<std::vector<ValueId>, ValueId> arguments_;      // by the values that the blocks hand in
  std::map<std::pair<size_t, size_t>, ValueId> bound_;     // by node and operand
};

}  // namespace

bool is_source(const Op& op) { return std::holds_alternative<Constant>(op) || std::holds_alternative<Iota>(op) || std::holds_alternative<SizeValue>(op); }

BlockSequence::BlockSequence(const Graph& graph) : place(graph.nodes.size(), none), last_user(graph.values.size(), 0) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (is_source(graph.nodes[n].op)) continue;
    place[n] = nodes.size();
    for (ValueId input : graph.nodes[n].inputs) last_user[static_cast<size_t>(input.index)] = nodes.size();
    nodes.push_back(n);
  }
  for (const GraphOutput& output : graph.outputs) last_user[static_cast<size_t>(output.value.index)] = nodes.size();
}

OutlinedBlocks outline_blocks(const Graph& graph, const BlockSequence& sequence, const BlockGroup& group, GraphClasses& classes) {
  return Outline(graph, sequence, group, classes).run();
}

size_t common_scope(const std::string& a, const std::string& b) {
  size_t components = 0;
  for (size_t i = 0;; ++i) {
    const bool end_a = i >= a.size() || a[i] == '.', end_b = i >= b.size() || b[i] == '.';
    if (end_a && end_b && i > 0) ++components;
    if (i >= a.size() || i >= b.size() || a[i] != b[i]) return components;
  }
}

}  // namespace stepgraph
