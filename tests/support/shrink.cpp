// SPDX-License-Identifier: Apache-2.0
#include "tests/support/shrink.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "stepgraph/compile/ir/text.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph::testing {
namespace {

class Shrinker {
 public:
  Shrinker(SmallProgram program, const SymbolValues& symbols, const Fails& fails) : best_(std::move(program)), symbols_(symbols), fails_(fails) {}

  SmallProgram run() {
    keep_one_output();
    for (bool again = true; again;) {
      again = false;
      const std::map<ValueId, Literal> values = all_values();
      for (size_t i = main(best_).nodes.size(); i-- > 0;) {
        if (i >= main(best_).nodes.size()) continue;
        if (std::optional<SmallProgram> cut = without_node(i, values); cut && fails_still(*cut)) best_ = std::move(*cut), again = true;
      }
    }
    best_.module = whole(best_.module);
    return std::move(best_);
  }

 private:
  static Graph& main(SmallProgram& program) { return program.module.graph(program.module.entries.front().graph); }

  /// Without the values that went with their nodes.
  static Module whole(const Module& module) { return parse_module(print_module(module)); }
  bool fails_still(const SmallProgram& program) const {
    try {
      return fails_(whole(program.module), program.inputs);
    } catch (const std::exception&) {
      return false;
    }
  }
  void keep_one_output() {
    const std::vector<GraphOutput> outputs = main(best_).outputs;
    for (const GraphOutput& output : outputs) {
      SmallProgram one = best_;
      main(one).outputs = {output};
      tidy(one);
      if (!fails_still(one)) continue;
      best_ = std::move(one);
      return;
    }
  }
  /// Without what nothing reads.
  static void tidy(SmallProgram& program) {
    Graph& graph = main(program);
    remove_dead_nodes(graph);
    std::vector<char> is_read(graph.values.size(), 0);
    for (const Node& node : graph.nodes)
      for (const ValueId input : node.inputs) is_read[static_cast<size_t>(input.index)] = 1;
    for (const GraphOutput& output : graph.outputs) is_read[static_cast<size_t>(output.value.index)] = 1;
    std::vector<GraphInput> inputs;
    std::vector<Literal> literals;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      if (!is_read[static_cast<size_t>(graph.inputs[i].value.index)]) continue;
      inputs.push_back(graph.inputs[i]);
      literals.push_back(program.inputs[i]);
    }
    graph.inputs = std::move(inputs);
    program.inputs = std::move(literals);
    program.module = prune_graphs(std::move(program.module));
  }
  std::map<ValueId, Literal> all_values() {
    SmallProgram all = best_;
    Graph& graph = main(all);
    graph.outputs.clear();
    for (const Node& node : graph.nodes)
      for (const ValueId result : node.results) graph.outputs.push_back({result, {RoleKind::UserOutput, std::to_string(result.index), 0}});
    const std::vector<Literal> literals = evaluate_graph(all.module, all.module.entries.front().graph, all.inputs, symbols_);
    std::map<ValueId, Literal> values;
    for (size_t i = 0; i < literals.size(); ++i) values.emplace(graph.outputs[i].value, literals[i]);
    return values;
  }
  std::optional<SmallProgram> without_node(size_t index, const std::map<ValueId, Literal>& values) {
    SmallProgram cut = best_;
    Graph& graph = main(cut);
    const std::vector<ValueId> results = graph.nodes[index].results;
    // What makes an output is needed, or nothing is left to look at.
    if (graph.nodes.size() == 1) return std::nullopt;
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(index));
    for (const ValueId result : results) {
      graph.values[static_cast<size_t>(result.index)].node = -1;
      graph.inputs.push_back({result, {RoleKind::Batch, "cut" + std::to_string(result.index), 0}});
      cut.inputs.push_back(values.at(result));
    }
    number_producers(graph);
    tidy(cut);
    if (graph.nodes.empty()) return std::nullopt;
    return cut;
  }

  SmallProgram best_;
  const SymbolValues& symbols_;
  const Fails& fails_;
};

}  // namespace

std::string SmallProgram::text() const {
  std::string result = print_module(module, PrintOptions{.places = false, .scopes = false});
  for (size_t i = 0; i < inputs.size(); ++i) result += "# %" + std::to_string(i) + " = " + inputs[i].text(64) + "\n";
  return result;
}

SmallProgram shrink(Module module, std::vector<Literal> inputs, const SymbolValues& symbols, const Fails& fails) {
  module.states = {};
  Graph& graph = module.graph(module.entries.front().graph);
  for (size_t i = 0; i < graph.inputs.size(); ++i) graph.inputs[i].role = {RoleKind::Batch, "in" + std::to_string(i), 0};
  return Shrinker({std::move(module), std::move(inputs)}, symbols, fails).run();
}

}  // namespace stepgraph::testing
