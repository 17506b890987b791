// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/tap.h"

#include <algorithm>
#include <map>
#include <utility>

#include "stepgraph/base/nearest.h"
#include "stepgraph/base/pattern.h"
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {
namespace {

std::string name_of(const Node& node) {
  std::string result;
  if (node.phase != Phase::None) result.append(name(node.phase)).append("/");
  if (!node.scope.empty()) result.append(node.scope).append("/");
  return result.append(name(node.op));
}

std::vector<Entry> tapped_entries(const Module& module) {
  const auto step = module.find_entry("step");
  return step ? std::vector<Entry>{{"step", *step}} : module.entries;
}

}  // namespace

std::vector<NamedValue> value_names(const Graph& graph) {
  std::vector<NamedValue> values;
  std::map<std::string, int> used;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (std::holds_alternative<Constant>(node.op)) continue;
    std::string own = name_of(node);
    if (const int count = ++used[own]; count > 1) own += "#" + std::to_string(count);
    for (size_t result = 0; result < node.results.size(); ++result)
      values.push_back({node.results[result], static_cast<int>(i), result == 0 ? own : own + "." + std::to_string(result)});
  }
  return values;
}

Module tap_values(Module flat, GraphId entry, const std::vector<NamedValue>& values) {
  Builder builder(flat, entry);
  for (const NamedValue& named : values) {
    // A copy of its own: what is tapped may lie in memory as its readers want it, or be a state that is written in place.
    const Node& node = builder.graph().nodes[static_cast<size_t>(named.node)];
    builder.set_provenance({node.place, node.scope, node.phase});
    const Value value = builder.value(named.value);
    builder.output(builder.emit_one(Convert{value.dtype()}, {value}), {RoleKind::Tap, named.name});
  }
  return flat;
}

Module tap(Module flat, const std::vector<std::string>& patterns) {
  std::vector<char> matched(patterns.size(), 0);
  std::vector<std::string> names;
  for (const Entry& entry : tapped_entries(flat)) {
    std::vector<NamedValue> wanted;
    for (NamedValue& value : value_names(flat.graph(entry.graph))) {
      bool is_wanted = false;
      for (size_t p = 0; p < patterns.size(); ++p)
        if (matches(patterns[p], value.name)) matched[p] = 1, is_wanted = true;
      names.push_back(value.name);
      if (is_wanted) wanted.push_back(std::move(value));
    }
    flat = tap_values(std::move(flat), entry.graph, wanted);
  }
  for (size_t p = 0; p < patterns.size(); ++p)
    if (!matched[p])
      throw UserError("tap: no value of the program is named '" + patterns[p] + "'; " + (names.empty() ? "it computes none" : "nearest are " + nearest_names(patterns[p], names)));
  return flat;
}

}  // namespace stepgraph
