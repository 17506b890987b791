// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/loop_facts.h"

#include <algorithm>

#include "stepgraph/compile/passes/rewrite.h"

namespace stepgraph {
namespace {

using DimList = std::vector<int64_t>;

DimList shifted(DimList dims) {
  for (int64_t& dim : dims) ++dim;
  return dims;
}
DimList with_first(DimList dims) {
  dims = shifted(std::move(dims));
  dims.insert(dims.begin(), 0);
  return dims;
}
Shape with_first(Shape shape, const Dim& first) {
  shape.insert(shape.begin(), first);
  return shape;
}

bool depends_on(const SymbolTable& symbols, const Dim& dim, const std::string& symbol) {
  if (dim.is_constant()) return false;
  const std::vector<std::string> names = symbols.expand(dim).symbols();
  return std::find(names.begin(), names.end(), symbol) != names.end();
}

bool reads_iteration(const Module& module, const Graph& body, const Node& node, const std::string& symbol) {
  bool found = false;
  for_each_dim(node.op, [&](const Dim& dim) { found = found || depends_on(module.symbols, dim, symbol); });
  for (const ValueId result : node.results)
    for (const Dim& dim : body.type(result).shape) found = found || depends_on(module.symbols, dim, symbol);
  return found;
}

}  // namespace

LoopFacts::LoopFacts(const Module& module, const Loop& loop, const std::vector<bool>& is_spread) {
  const Graph& body = module.graph(loop.body);
  const auto carried = static_cast<size_t>(loop.carried), scanned = static_cast<size_t>(loop.scanned);
  values.assign(body.values.size(), LoopValue::Invariant);
  of_inputs.assign(body.values.size(), false);
  can_stack.assign(body.values.size(), true);
  uses.assign(body.values.size(), 0);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    const ValueId input = body.inputs[i].value;
    of_inputs[at(input)] = true;
    if (i < carried) {
      fixed_.push_back(body.outputs[i].value == input);
      if (!fixed_[i]) values[at(input)] = LoopValue::Varying;
    } else if (i < carried + scanned && !is_spread[i - carried]) {
      values[at(input)] = LoopValue::Sliced;
    }
  }
  for (const Node& node : body.nodes) {
    LoopValue most =
        is_control(node.op) || is_collective(node.op) || reads_iteration(module, body, node, loop.symbol) ? LoopValue::Varying : LoopValue::Invariant;
    bool inputs_stack = true, any_input = false;
    for (const ValueId input : node.inputs) {
      ++uses[at(input)];
      most = std::max(most, values[at(input)]);
      inputs_stack = inputs_stack && can_stack[at(input)];
      any_input = any_input || of_inputs[at(input)];
    }
    for (const ValueId result : node.results) values[at(result)] = most, of_inputs[at(result)] = any_input;
    const bool stacks = most == LoopValue::Invariant || (most == LoopValue::Sliced && inputs_stack && stacked_op(node, *this, loop.trip_count));
    for (const ValueId result : node.results) can_stack[at(result)] = stacks;
  }
  for (const GraphOutput& output : body.outputs) ++uses[at(output.value)];
}

std::optional<Op> stacked_op(const Node& node, const LoopFacts& facts, const Dim& trip_count) {
  if (is_per_element(node.op)) return node.op;
  if (const auto* matmul = std::get_if<MatMul>(&node.op)) {
    const bool by_invariant = facts.values[at(node.inputs[0])] == LoopValue::Sliced && facts.values[at(node.inputs[1])] == LoopValue::Invariant;
    if (!by_invariant || !matmul->lhs_batch.empty()) return std::nullopt;
    return MatMul{{}, {}, shifted(matmul->lhs_contract), matmul->rhs_contract, matmul->result_dtype};
  }
  if (const auto* reshape = std::get_if<Reshape>(&node.op)) return Reshape{with_first(reshape->shape, trip_count)};
  if (const auto* transpose = std::get_if<Transpose>(&node.op)) return Transpose{with_first(transpose->permutation)};
  if (const auto* broadcast = std::get_if<Broadcast>(&node.op)) return Broadcast{with_first(broadcast->shape, trip_count), with_first(broadcast->dims)};
  if (const auto* reduce = std::get_if<Reduce>(&node.op)) return Reduce{reduce->kind, shifted(reduce->dims)};
  if (const auto* concatenate = std::get_if<Concatenate>(&node.op)) return Concatenate{concatenate->dim + 1};
  if (const auto* slice = std::get_if<Slice>(&node.op)) {
    Slice stacked{with_first(slice->starts, 0), with_first(slice->limits, trip_count), slice->strides};
    stacked.strides.insert(stacked.strides.begin(), 1);
    return stacked;
  }
  return std::nullopt;
}

}  // namespace stepgraph
