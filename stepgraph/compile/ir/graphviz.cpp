// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/graphviz.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "stepgraph/compile/ir/text.h"

namespace stepgraph {
namespace {

constexpr size_t expanded_nodes_max = 40;
constexpr size_t label_max = 80;
constexpr int cluster_depth_max = 20;

std::string quoted_label(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') result += "\\n";
    else result += c;
  }
  return result + "\"";
}

/// A scope of the model: its own statements, then the scopes inside.
struct Cluster {
  std::vector<std::string> statements;
  std::map<std::string, Cluster, std::less<>> inside;
};

class Drawing {
 public:
  Drawing(const Module& module, const Graph& graph) : module_(module), graph_(graph), sources_(graph.values.size()) {}

  std::string text() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) add_input(i);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) add_node(i);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) add_output(i);
    out_ = "digraph " + quoted_label(graph_.name) + " {\n  rankdir=TB;\n  node [shape=box, style=rounded, fontname=\"sans-serif\", fontsize=10];\n" +
           "  edge [fontname=\"sans-serif\", fontsize=8];\n";
    print(root_, 1);
    for (const std::string& edge : edges_) out_ += "  " + edge + ";\n";
    return out_ + "}\n";
  }

 private:
  std::string& source(ValueId value) { return sources_[static_cast<size_t>(value.index)]; }

  static std::string role_text(const Role& role, std::string_view otherwise) {
    if (role.kind == RoleKind::None) return std::string(otherwise);
    return std::string(name(role.kind)) + (role.name.empty() ? "" : " " + role.name);
  }

  void add_input(size_t i) {
    const GraphInput& input = graph_.inputs[i];
    const std::string id = "in" + std::to_string(i);
    source(input.value) = id;
    const std::string label = role_text(input.role, "input " + std::to_string(i)) + "\n" + stepgraph::text(graph_.type(input.value));
    root_.statements.push_back(id + " [shape=ellipse, label=" + quoted_label(label) + "]");
  }

  void add_output(size_t i) {
    const GraphOutput& output = graph_.outputs[i];
    const std::string id = "out" + std::to_string(i);
    root_.statements.push_back(id + " [shape=ellipse, peripheries=2, label=" + quoted_label(role_text(output.role, "output " + std::to_string(i))) + "]");
    add_edge(source(output.value), id, graph_.type(output.value));
  }

  void add_edge(const std::string& from, const std::string& to, const TensorType& type) {
    edges_.push_back(from + " -> " + to + " [label=" + quoted_label(stepgraph::text(type)) + "]");
  }

  Cluster& cluster(std::string_view scope) {
    Cluster* result = &root_;
    for (int depth = 1; !scope.empty(); ++depth) {
      const size_t dot = depth < cluster_depth_max ? std::min(scope.find('.'), scope.size()) : scope.size();
      result = &result->inside[std::string(scope.substr(0, dot))];
      scope.remove_prefix(std::min(dot + 1, scope.size()));
    }
    return *result;
  }

  /// "reduce_sum\ndims=[1]"
  std::string label(const Node& node) const {
    Node alone;
    alone.op = node.op;
    std::string text = node_text(module_, alone, ValueNumbers(Graph{}));
    const size_t open = text.find('(');
    std::string attributes = text.substr(open + 1, text.size() - open - 2);
    if (attributes.size() > label_max) attributes = attributes.substr(0, label_max) + "...";
    return text.substr(0, open) + (attributes.empty() ? "" : "\n" + attributes);
  }

  void add_node(size_t n) {
    const Node& node = graph_.nodes[n];
    const std::string id = "n" + std::to_string(n);
    Cluster& home = cluster(node.scope);
    const auto* call = std::get_if<Call>(&node.op);
    if (call != nullptr) {
      const Graph& callee = module_.graph(call->graph);
      if (!callee.composite.empty() && callee.nodes.size() <= expanded_nodes_max) return expand(node, callee, id, home);
    }
    home.statements.push_back(id + " [label=" + quoted_label(label(node)) + (is_control(node.op) ? ", peripheries=2" : "") + "]");
    for (const ValueId input : node.inputs) add_edge(source(input), id, graph_.type(input));
    for (const ValueId result : node.results) source(result) = id;
  }

  /// The callee's nodes in place of the call.
  void expand(const Node& call, const Graph& callee, const std::string& id, Cluster& home) {
    Cluster& inside = home.inside[callee.composite + " (" + id + ")"];
    std::vector<std::string> sources(callee.values.size());
    const auto inner = [&](ValueId value) -> std::string& { return sources[static_cast<size_t>(value.index)]; };
    for (size_t i = 0; i < callee.inputs.size(); ++i) inner(callee.inputs[i].value) = source(call.inputs[i]);
    for (size_t n = 0; n < callee.nodes.size(); ++n) {
      const Node& node = callee.nodes[n];
      const std::string inner_id = id + "_" + std::to_string(n);
      inside.statements.push_back(inner_id + " [label=" + quoted_label(label(node)) + (is_control(node.op) ? ", peripheries=2" : "") + "]");
      for (const ValueId input : node.inputs) add_edge(inner(input), inner_id, callee.type(input));
      for (const ValueId result : node.results) inner(result) = inner_id;
    }
    for (size_t i = 0; i < call.results.size(); ++i) source(call.results[i]) = inner(callee.outputs[i].value);
  }

  void print(const Cluster& cluster, size_t depth) {
    const std::string indent(2 * depth, ' ');
    for (const std::string& statement : cluster.statements) out_ += indent + statement + ";\n";
    for (const auto& [name, inside] : cluster.inside) {
      out_ += indent + "subgraph cluster_" + std::to_string(clusters_++) + " {\n" + indent + "  label=" + quoted_label(name) + ";\n";
      print(inside, depth + 1);
      out_ += indent + "}\n";
    }
  }

  const Module& module_;
  const Graph& graph_;
  std::vector<std::string> sources_;  ///< of each value, the drawn node that it comes from
  Cluster root_;
  std::vector<std::string> edges_;
  std::string out_;
  int clusters_ = 0;
};

}  // namespace

std::string graphviz(const Module& module, GraphId graph) { return Drawing(module, module.graph(graph)).text(); }

}  // namespace stepgraph
