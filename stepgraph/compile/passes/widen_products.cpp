// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/widen_products.h"

#include <algorithm>
#include <utility>

#include "stepgraph/compile/passes/canonical_rewrites.h"

namespace stepgraph {
namespace {

bool is_product(const Op& op) {
  return std::holds_alternative<MatMul>(op) || std::holds_alternative<Convolution>(op) || std::holds_alternative<Attention>(op) ||
         std::holds_alternative<AttentionGradient>(op);
}

Rewritten widen(const NodeRewrite& node) {
  const auto is_narrow = [](Value value) { return is_half(value.dtype()); };
  if (!is_product(node.op) || std::none_of(node.inputs.begin(), node.inputs.end(), is_narrow)) return std::nullopt;
  Builder& builder = node.builder;
  std::vector<Value> operands;
  for (const Value input : node.inputs) operands.push_back(is_narrow(input) ? builder.emit_one(Convert{DType::F32, false}, {input}) : input);
  Op wide = node.op;
  if (auto* product = std::get_if<MatMul>(&wide); product != nullptr && is_half(product->result_dtype.value_or(DType::F16))) product->result_dtype.reset();
  std::vector<Value> results = builder.emit(std::move(wide), operands);
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].dtype() != node.results[i].dtype) results[i] = builder.emit_one(Convert{node.results[i].dtype, true}, {results[i]});
  return results;
}

}  // namespace

Module widen_products(Module module) {
  const auto holds_halves = [](const Graph& graph) {
    return std::any_of(graph.values.begin(), graph.values.end(), [](const ValueInfo& value) { return is_half(value.type.dtype); });
  };
  if (std::none_of(module.graphs.begin(), module.graphs.end(), holds_halves)) return module;
  static constexpr Rewrite rewrites[] = {widen};
  return rewrite_nodes(std::move(module), rewrites, is_product);
}

}  // namespace stepgraph
