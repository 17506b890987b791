// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "stepgraph/base/text_scanner.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/tensor/declaration_text.h"

namespace stepgraph {
namespace {

/// A name for each graph, no two equal: a repeated one gets a suffix that is nobody's own name.
std::vector<std::string> unique_graph_names(const Module& module) {
  std::set<std::string, std::less<>> taken;
  for (const Graph& graph : module.graphs) taken.insert(graph.name);
  std::map<std::string, int64_t, std::less<>> repeats;
  std::vector<std::string> names;
  for (const Graph& graph : module.graphs) {
    const auto [found, first] = repeats.emplace(graph.name, 0);
    std::string name = graph.name;
    while (!first && !taken.insert(name).second) name = graph.name + "." + std::to_string(++found->second);
    names.push_back(std::move(name));
  }
  return names;
}

std::string graph_reference(const std::vector<std::string>& names, GraphId graph) {
  if (graph.index < 0 || static_cast<size_t>(graph.index) >= names.size()) return "@?";
  return "@" + word_or_quoted_text(names[static_cast<size_t>(graph.index)]);
}

template <class Item, class Text>
std::string list_text(const std::vector<Item>& items, const Text& item_text) {
  std::string result = "[";
  for (size_t i = 0; i < items.size(); ++i) result += (i > 0 ? ", " : "") + item_text(items[i]);
  return result + "]";
}

/// Texts of an op's attributes, by name.
class FieldWriter : public EachField<FieldWriter> {
 public:
  FieldWriter(const std::vector<std::string>& graph_names, bool literals) : graph_names_(graph_names), literals_(literals) {}
  std::vector<std::pair<std::string, std::string>> fields;

  void field(std::string_view name, bool& value) { add(name, value ? "true" : "false"); }
  void field(std::string_view name, int64_t& value) { add(name, std::to_string(value)); }
  void field(std::string_view name, std::vector<int64_t>& value) {
    add(name, list_text(value, [](int64_t item) { return std::to_string(item); }));
  }
  void field(std::string_view name, std::string& value) { add(name, quoted_text(value)); }
  void field(std::string_view name, double& value) { add(name, real_text(value)); }
  void field(std::string_view name, DType& value) { add(name, std::string(stepgraph::name(value))); }
  void field(std::string_view name, std::optional<DType>& value) { add(name, value ? std::string(stepgraph::name(*value)) : ""); }
  void field(std::string_view name, Dim& value) { add(name, value.text()); }
  void field(std::string_view name, Shape& value) {
    add(name, list_text(value, [](const Dim& item) { return item.text(); }));
  }
  void field(std::string_view name, Literal& value) { add(name, literals_ ? literal_text(value) : value.text(4)); }
  void field(std::string_view name, GraphId& value) { add(name, graph_reference(graph_names_, value)); }
  void field(std::string_view name, EnumRef value) { add(name, std::string(value.text())); }
  void field(std::string_view name, std::vector<AxisRef>& value) { add(name, list_text(value, [](const AxisRef& item) { return stepgraph::text(item); })); }
  void field(std::string_view name, Sharding& value) { add(name, std::string("<").append(text(value)).append(">")); }

 private:
  void add(std::string_view name, std::string text) { fields.emplace_back(name, std::move(text)); }
  const std::vector<std::string>& graph_names_;
  bool literals_;
};

class Printer {
 public:
  Printer(const Module& module, const PrintOptions& options) : module_(module), options_(options), graph_names_(unique_graph_names(module)) {}

  std::string module() {
    out_ = "stepgraph 1\nmodule " + word_or_quoted_text(module_.name) + " stage " + std::string(name(module_.stage)) + "\n";
    if (!module_.mesh.axes.empty()) out_ += "mesh " + module_.mesh.text() + "\n";
    for (const Symbol& symbol : module_.symbols.all()) out_ += broken_statement("symbol " + stepgraph::text(symbol)) + "\n";
    for (const StateInfo& state : module_.states)
      if (state.wish) out_ += "state " + quoted_text(state.name) + " <" + text(*state.wish) + ">\n";
    for (size_t i = 0; i < module_.graphs.size(); ++i) print_graph({static_cast<int32_t>(i)});
    for (size_t i = 0; i < module_.entries.size(); ++i) {
      const Entry& entry = module_.entries[i];
      out_ += (i == 0 ? "\nentry " : "entry ") + word_or_quoted_text(entry.name) + " " + reference(entry.graph) + "\n";
    }
    return std::move(out_);
  }

  std::string graph(GraphId id) {
    print_graph(id);
    return out_.substr(1);  // without the empty line before it
  }

  std::string node(const Node& node, const ValueNumbers& numbers) {
    std::string result = values(node.results, numbers);
    if (!result.empty()) result += " = ";
    result += std::string(name(node.op)) + "(" + values(node.inputs, numbers);
    FieldWriter stated(graph_names_, options_.literals), usual(graph_names_, options_.literals);
    visit_fields(node.op, stated);
    const Op default_op = *op_from_name(name(node.op));
    visit_fields(default_op, usual);
    bool first = node.inputs.empty();
    for (size_t i = 0; i < stated.fields.size(); ++i) {
      if (stated.fields[i] == usual.fields[i]) continue;
      result += (first ? "" : ", ") + stated.fields[i].first + "=" + stated.fields[i].second;
      first = false;
    }
    return result + ")";
  }

  std::string reference(GraphId id) const { return graph_reference(graph_names_, id); }

 private:
  /// Ends the statement that began at that place, in lines that a reader can take in.
  void end_statement(size_t begin) {
    if (out_.size() - begin > line_width) out_.replace(begin, std::string::npos, broken_statement(out_.substr(begin)));
    out_ += "\n";
  }

  void print_graph(GraphId id) {
    const Graph& graph = module_.graph(id);
    const ValueNumbers numbers(graph);
    out_ += "\n";
    const size_t head = out_.size();
    out_ += "graph " + reference(id);
    if (!graph.composite.empty()) out_ += " composite " + quoted_text(graph.composite);
    if (graph.gradient) out_ += " gradient " + reference(*graph.gradient);
    out_ += " {";
    end_statement(head);
    for (const GraphInput& input : graph.inputs) {
      const size_t begin = out_.size();
      out_ += "  input " + numbers.text(input.value);
      if (options_.types) out_ += " : " + type(graph, input.value);
      out_ += role(input.role);
      end_statement(begin);
    }
    for (const Node& node : graph.nodes) print_node(graph, node, numbers);
    for (const GraphOutput& output : graph.outputs) {
      const size_t begin = out_.size();
      out_ += "  output " + numbers.text(output.value) + role(output.role);
      end_statement(begin);
    }
    out_ += "}\n";
  }

  void print_node(const Graph& graph, const Node& node, const ValueNumbers& numbers) {
    const size_t begin = out_.size();
    out_ += "  " + this->node(node, numbers);
    if (options_.types)
      for (size_t i = 0; i < node.results.size(); ++i) out_ += (i == 0 ? " : " : ", ") + type(graph, node.results[i]);
    if (options_.places && node.place.known()) out_ += " at " + quoted_text(node.place.text());
    if (options_.scopes && !node.scope.empty()) out_ += " scope " + quoted_text(node.scope);
    if (options_.places && node.phase != Phase::None) out_ += " phase " + std::string(name(node.phase));
    end_statement(begin);
  }

  static std::string type(const Graph& graph, ValueId value) {
    if (value.index < 0 || static_cast<size_t>(value.index) >= graph.values.size()) return "?";
    return text(graph.type(value));
  }

  static std::string role(const Role& role) {
    if (role.kind == RoleKind::None && role.name.empty()) return {};
    const std::string dim = role.batch_dim == 0 ? "" : "[" + std::to_string(role.batch_dim) + "]";
    return " " + std::string(name(role.kind)) + dim + (role.name.empty() ? "" : " " + quoted_text(role.name));
  }

  static std::string values(const std::vector<ValueId>& values, const ValueNumbers& numbers) {
    std::string result;
    for (const ValueId value : values) result += (result.empty() ? "" : ", ") + numbers.text(value);
    return result;
  }

  const Module& module_;
  PrintOptions options_;
  std::vector<std::string> graph_names_;
  std::string out_;
};

}  // namespace

ValueNumbers::ValueNumbers(const Graph& graph) : numbers_(graph.values.size(), -1) {
  int64_t next = 0;
  const auto define = [&](ValueId value) {
    const auto index = static_cast<size_t>(value.index);
    if (value.index >= 0 && index < numbers_.size() && numbers_[index] < 0) numbers_[index] = next++;
  };
  for (const GraphInput& input : graph.inputs) define(input.value);
  for (const Node& node : graph.nodes)
    for (const ValueId result : node.results) define(result);
}

std::string ValueNumbers::text(ValueId value) const {
  const auto index = static_cast<size_t>(value.index);
  if (value.index < 0 || index >= numbers_.size() || numbers_[index] < 0) return "%?";
  return "%" + std::to_string(numbers_[index]);
}

std::string print_module(const Module& module, const PrintOptions& options) { return Printer(module, options).module(); }
std::string print_graph(const Module& module, GraphId graph, const PrintOptions& options) { return Printer(module, options).graph(graph); }
std::string node_text(const Module& module, const Node& node, const ValueNumbers& numbers) {
  return Printer(module, {.literals = false}).node(node, numbers);
}
std::string graph_text(const Module& module, GraphId graph) { return Printer(module, {}).reference(graph); }

}  // namespace stepgraph
