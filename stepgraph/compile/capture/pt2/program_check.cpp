// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/program_check.h"
#include <fmt/core.h>
#include <set>
#include <type_traits>
#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"

namespace stepgraph::pt2 {
namespace {

struct Scope {
  const ExportedGraph& graph;
  const Scope* around;
  std::set<std::string, std::less<>> names;

  bool known(const std::string& name) const { return names.contains(name) || (around != nullptr && around->known(name)); }
};

/// Calls see(name, is_tensor) for the values that an argument names.
template <class See>
struct Names {
  const See& see;
  void operator()(const TensorRef& tensor) const { see(tensor.name, true); }
  template <class T>
  void operator()(const std::optional<T>& item) const {
    if (item) (*this)(*item);
  }
  template <class T>
  void operator()(const std::vector<T>& items) const {
    if constexpr (!std::is_arithmetic_v<T> && !std::is_same_v<T, std::string>)
      for (const T& item : items) (*this)(item);
  }
  void operator()(const SymInt& item) const { sym(item.value); }
  void operator()(const SymFloat& item) const { sym(item.value); }
  void operator()(const SymBool& item) const { sym(item.value); }
  template <class T>
  void operator()(const T&) const {}

 private:
  template <class Value>
  void sym(const Value& value) const {
    if (const auto* name = std::get_if<std::string>(&value)) see(*name, false);
  }
};
template <class See>
void for_each_name(const Argument& argument, const See& see) {
  std::visit(Names<See>{see}, argument);
}

void use(const Argument& argument, const Scope& scope, const std::string& where) {
  for_each_name(argument, [&](const std::string& name, bool) {
    if (!scope.known(name)) throw UserError(fmt::format("{}: value '{}' is used before it is defined", where, shown(name)));
  });
}
void define(const Argument& argument, Scope& scope, const std::string& where) {
  for_each_name(argument, [&](const std::string& name, bool tensor) {
    if (!scope.names.insert(name).second) throw UserError(fmt::format("{}: value '{}' is defined twice", where, shown(name)));
    if (tensor && !scope.graph.tensors.contains(name)) throw UserError(fmt::format("{}: tensor '{}' is missing in tensor_values", where, shown(name)));
  });
}

void check_graph(const ExportedGraph& graph, const Scope* around, const std::string& where) {
  Scope scope{graph, around, {}};
  for (size_t i = 0; i < graph.inputs.size(); ++i) define(graph.inputs[i], scope, fmt::format("{}: inputs[{}]", where, i));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ExportedNode& node = graph.nodes[i];
    const std::string place = fmt::format("{}: nodes[{}] ({})", where, i, shown(node.target));
    for (const NamedArgument& input : node.inputs) {
      use(input.value, scope, place);
      if (const auto* nested = std::get_if<ExportedRegion>(&input.value)) check_graph(*nested->graph, &scope, place);
    }
    for (const Argument& output : node.outputs) define(output, scope, place);
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) use(graph.outputs[i], scope, fmt::format("{}: outputs[{}]", where, i));
}

}  // namespace

void check_names(const ExportedGraph& graph, const std::string& where) { check_graph(graph, nullptr, where); }

}  // namespace stepgraph::pt2
