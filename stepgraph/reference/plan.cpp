// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/reference/plan.h"

#include <algorithm>
#include <set>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

void collect(const Dim& dim, std::set<std::string>& symbols) {
  if (dim.is_constant()) return;
  for (std::string& symbol : dim.symbols()) symbols.insert(std::move(symbol));
}

}  // namespace

GraphPlan plan_graph(const Graph& graph) {
  GraphPlan plan;
  plan.nodes.resize(graph.nodes.size());
  std::vector<bool> seen(graph.values.size(), false);
  for (const GraphOutput& output : graph.outputs) seen[static_cast<size_t>(output.value.index)] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    NodePlan& step = plan.nodes[n];
    step.info = &op_info(node.op);
    std::set<std::string> symbols;
    for_each_dim(node.op, [&](const Dim& dim) { collect(dim, symbols); });
    for (const ValueId result : node.results)
      for (const Dim& dim : graph.type(result).shape) collect(dim, symbols);
    step.symbols.assign(symbols.begin(), symbols.end());
    // From the end: the first sight of a value is its last use; a result never seen dies at its own node.
    const auto visit = [&](ValueId value) {
      if (seen[static_cast<size_t>(value.index)]) return;
      seen[static_cast<size_t>(value.index)] = true;
      step.last_uses.push_back(value);
    };
    for (const ValueId result : node.results) visit(result);
    for (const ValueId input : node.inputs) visit(input);
  }
  for (const GraphInput& input : graph.inputs)
    if (!seen[static_cast<size_t>(input.value.index)]) plan.unused_inputs.push_back(input.value);
  return plan;
}

void bind_node(NodePlan& plan, const Graph& graph, const Node& node, const SymbolValues& values) {
  if (plan.is_bound && plan.symbols.empty()) return;
  std::vector<int64_t> now;
  for (const std::string& symbol : plan.symbols) {
    const auto found = values.find(symbol);
    if (found == values.end())
      throw UserError(graph.name + ": " + std::string(name(node.op)) + " needs the value of '" + symbol + "', which no input tells", node.place);
    now.push_back(found->second);
  }
  if (plan.is_bound && now == plan.bound_with) return;
  plan.op = plan.symbols.empty() ? node.op : bind(node.op, values);
  plan.results.clear();
  for (const ValueId result : node.results) {
    TensorType type = graph.type(result);
    type.sharding.reset();
    for (Dim& dim : type.shape) dim = substitute(dim, values);
    plan.results.push_back(std::move(type));
  }
  plan.bound_with = std::move(now);
  plan.is_bound = true;
}

void LiveBytes::add(const Literal& value) {
  if (value.data() == nullptr || references_[value.data()]++ > 0) return;
  bytes_ += static_cast<int64_t>(value.byte_count());
  peak_ = std::max(peak_, bytes_);
}
void LiveBytes::remove(const Literal& value) {
  const auto found = references_.find(value.data());
  if (found == references_.end() || --found->second > 0) return;
  bytes_ -= static_cast<int64_t>(value.byte_count());
  references_.erase(found);
}

}  // namespace stepgraph
