// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/batch_factor.h"

#include <algorithm>
#include <span>

namespace stepgraph {
namespace {

/// Takes what is new; what is known stays.
bool learn(std::optional<Dim>& slot, const std::optional<Dim>& found) {
  if (slot || !found) return false;
  slot = found;
  return true;
}
bool learn(BatchFactors& slots, const BatchFactors& found) {
  bool changed = false;
  for (size_t d = 0; d < slots.size() && d < found.size(); ++d) changed |= learn(slots[d], found[d]);
  return changed;
}

/// A loop takes these apart along dim 0: operands by number, results by number.
bool is_scanned(const Loop* loop, size_t operand) {
  return loop && operand >= static_cast<size_t>(loop->carried) && operand < static_cast<size_t>(loop->carried + loop->scanned);
}
bool is_stacked(const Loop* loop, size_t result) { return loop && result >= static_cast<size_t>(loop->carried); }

BatchFactors without_first(BatchFactors factors) {
  if (!factors.empty()) factors.erase(factors.begin());
  return factors;
}
BatchFactors with_first(BatchFactors factors) {
  factors.insert(factors.begin(), std::nullopt);
  return factors;
}

}  // namespace

std::string text(const BatchBorder& border) {
  std::string result;
  for (const auto* side : {&border.inputs, &border.outputs}) {
    result += "|";
    for (const BatchFactors& factors : *side) {
      result += ";";
      for (const auto& factor : factors) result += (factor ? factor->text() : "?") + ",";
    }
  }
  return result;
}

bool BatchFactorAnalysis::has_batch(const Dim& dim) const {
  const std::vector<std::string> symbols = dim.symbols();
  return std::find(symbols.begin(), symbols.end(), batch_) != symbols.end();
}

std::optional<Dim> BatchFactorAnalysis::beside_batch(const Dim& dim) const {
  const std::optional<Dim> beside = exact_quotient(dim, Dim::symbol(batch_));
  return beside && !has_batch(*beside) ? beside : std::nullopt;
}

std::vector<BatchFactors> BatchFactorAnalysis::values(const Graph& graph, const BatchBorder& around) {
  std::vector<BatchFactors> values;
  for (const ValueInfo& value : graph.values) {
    values.emplace_back(value.type.shape.size());
    for (size_t d = 0; d < value.type.shape.size(); ++d)
      if (value.type.shape[d] == Dim::symbol(batch_)) values.back()[d] = Dim(1);
  }
  for (size_t i = 0; i < around.inputs.size(); ++i) learn(values[at(graph.inputs[i].value)], around.inputs[i]);
  for (size_t i = 0; i < around.outputs.size(); ++i) learn(values[at(graph.outputs[i].value)], around.outputs[i]);
  const auto visit = [&](const Node& node) {
    return std::holds_alternative<Call>(node.op) || std::holds_alternative<Loop>(node.op) ? through_callee(node, values) : through_op(graph, node, values);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const Node& node : graph.nodes) changed |= visit(node);
    for (size_t n = graph.nodes.size(); n-- > 0;) changed |= visit(graph.nodes[n]);
  }
  return values;
}

bool BatchFactorAnalysis::through_op(const Graph& graph, const Node& node, std::vector<BatchFactors>& values) const {
  const OpInfo& info = op_info(node.op);
  if (!info.sharding_rule) return false;
  std::vector<TensorType> inputs, results;
  for (ValueId input : node.inputs) inputs.push_back(graph.type(input));
  for (ValueId result : node.results) results.push_back(graph.type(result));
  const ShardingRule rule = info.sharding_rule({node.op, inputs, results, module_});
  std::vector<std::optional<Dim>> known(rule.factors.size());
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (rule.factors[f].size == Dim::symbol(batch_)) known[f] = Dim(1);

  /// Calls `use` with the dim's own slot, the one factor that has the batch, and the product of those in front of it.
  const auto each_dim = [&](auto use) {
    for (const auto& [ids, sides] : {std::pair(&node.inputs, &rule.operands), std::pair(&node.results, &rule.results)})
      for (size_t v = 0; v < ids->size() && v < sides->size(); ++v)
        for (size_t d = 0; d < (*sides)[v].size(); ++d) {
          Dim before = 1, passed = 1;
          std::optional<size_t> carrier;
          int64_t carriers = 0;
          for (int factor : (*sides)[v][d]) {
            const Dim& size = rule.factors[static_cast<size_t>(factor)].size;
            if (has_batch(size)) carrier = static_cast<size_t>(factor), before = passed, ++carriers;
            passed = passed * size;
          }
          if (carriers == 1) use(values[at((*ids)[v])][d], *carrier, before);
        }
  };
  bool changed = false;
  each_dim([&](const std::optional<Dim>& slot, size_t factor, const Dim& before) {
    if (slot) learn(known[factor], exact_quotient(*slot, before));
  });
  each_dim([&](std::optional<Dim>& slot, size_t factor, const Dim& before) {
    if (known[factor]) changed |= learn(slot, before * *known[factor]);
  });
  return changed;
}

BatchBorder BatchFactorAnalysis::around_callee(const Node& node, const std::vector<BatchFactors>& values) {
  const Loop* loop = std::get_if<Loop>(&node.op);
  BatchBorder border;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    border.inputs.push_back(is_scanned(loop, i) ? without_first(values[at(node.inputs[i])]) : values[at(node.inputs[i])]);
  for (size_t i = 0; i < node.results.size(); ++i)
    border.outputs.push_back(is_stacked(loop, i) ? without_first(values[at(node.results[i])]) : values[at(node.results[i])]);
  // What is carried lies alike before and after.
  for (size_t i = 0; loop && i < static_cast<size_t>(loop->carried); ++i)
    learn(border.inputs[i], border.outputs[i]), learn(border.outputs[i], border.inputs[i]);
  return border;
}

bool BatchFactorAnalysis::through_callee(const Node& node, std::vector<BatchFactors>& values) {
  const Loop* loop = std::get_if<Loop>(&node.op);
  const GraphId callee = called_graphs(node.op).at(0);
  const BatchBorder around = around_callee(node, values);
  const auto key = std::make_pair(callee, text(around));
  auto found = known_.find(key);
  if (found == known_.end()) {
    const Graph& graph = module_.graph(callee);
    const std::vector<BatchFactors> inside = this->values(graph, around);
    BatchBorder border;
    for (const GraphInput& input : graph.inputs) border.inputs.push_back(inside[at(input.value)]);
    for (const GraphOutput& output : graph.outputs) border.outputs.push_back(inside[at(output.value)]);
    found = known_.emplace(key, std::move(border)).first;
  }
  const BatchBorder& border = found->second;
  bool changed = false;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    changed |= learn(values[at(node.inputs[i])], is_scanned(loop, i) ? with_first(border.inputs[i]) : border.inputs[i]);
  for (size_t i = 0; i < node.results.size(); ++i)
    changed |= learn(values[at(node.results[i])], is_stacked(loop, i) ? with_first(border.outputs[i]) : border.outputs[i]);
  return changed;
}

}  // namespace stepgraph
