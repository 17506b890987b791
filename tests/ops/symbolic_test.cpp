// SPDX-License-Identifier: Apache-2.0
// Every op with symbols for sizes: inferred and differentiated once, right for the sizes given when run.
#include <gtest/gtest.h>

#include <set>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/reference/interpreter.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace symbolic_test {

/// Which zero a product with zeros gives is left open.
Literal without_signed_zeros(Literal value) {
  if (!is_floating(value.dtype())) return value;
  for (int64_t i = 0; i < value.count(); ++i)
    if (value.at(i) == 0) value.set(i, 0);
  return value;
}

/// The symbol that stands for a size; 1 stays, since it stretches.
Dim symbol_for(SymbolTable& symbols, SymbolValues& values, int64_t size) {
  if (size == 1) return 1;
  const std::string symbol = "n" + std::to_string(size);
  values[symbol] = size;
  return symbols.declare({symbol, SymbolKind::Size, 0, 1024, 1, {}});
}

/// Sizes in attributes become the symbols of those sizes; 0 only if `zeros`: where it is a size, not a padding or a start.
void symbolise(Op& op, const SymbolValues& values, bool zeros) {
  for_each_dim(op, [&](Dim& dim) {
    if (!dim.is_constant()) return;
    for (const auto& [symbol, value] : values) {
      if (dim == Dim(value) && (value != 0 || zeros)) dim = Dim::symbol(symbol);
    }
  });
}

/// Results, then gradients of their weighted sum, then gradients of the sum of those.
std::vector<Value> results_and_gradients(Builder& builder, const Op& op, std::span<const Value> inputs) {
  std::vector<Value> outputs = builder.emit(op, inputs), floats;
  std::vector<Value> xs;
  for (const Value& output : outputs) {
    if (is_floating(output.dtype())) floats.push_back(output);
  }
  for (const Value& input : inputs) {
    if (is_floating(input.dtype())) xs.push_back(input);
  }
  if (floats.empty() || xs.empty()) return outputs;
  Value total = sum(floats[0] * 0.7);
  for (size_t i = 1; i < floats.size(); ++i) total = total + sum(floats[i] * 1.3);
  for (int order = 1; order <= 2; ++order) {
    Value next = total * 0.0;
    for (const std::optional<Value>& gradient : gradients(builder, total, xs)) {
      if (!gradient) continue;
      outputs.push_back(*gradient);
      next = next + sum(*gradient * *gradient);
    }
    total = next;
  }
  return outputs;
}

/// False when the symbolic sizes are not provably right, as 6 = 2 * 3 with a symbol for each.
bool matches_constant_sizes(const Sample& sample) {
  Module module;
  SymbolValues values;
  const GraphId graph = module.add_graph("main");
  module.entries.push_back({"main", graph});
  Builder builder(module, graph);
  std::vector<Value> inputs;
  for (const Literal& literal : sample.inputs) {
    TensorType type = type_of(literal);
    for (Dim& dim : type.shape) dim = symbol_for(module.symbols, values, dim.constant());
    inputs.push_back(builder.input(type));
  }
  Op op = sample.op;
  symbolise(op, values, std::holds_alternative<Broadcast>(op));
  try {
    for (const Value& output : results_and_gradients(builder, op, inputs)) builder.output(output);
  } catch (const UserError&) {
    return false;
  }
  verify(module);
  const std::vector<Literal> got = evaluate_graph(module, graph, sample.inputs, values);
  const std::vector<Literal> wanted = run_graph(
      sample.inputs, [&](Builder& plain, std::span<const Value> operands) { return results_and_gradients(plain, sample.op, operands); });
  EXPECT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size() && i < wanted.size(); ++i) EXPECT_EQ(without_signed_zeros(got[i]).text(30), without_signed_zeros(wanted[i]).text(30)) << "output " << i;
  return true;
}

std::vector<std::string> symbolic_names() {
  std::set<std::string> names;
  for (const Sample& sample : samples()) names.insert(std::string(name(sample.op)));
  return {names.begin(), names.end()};
}

/// Ops whose attributes tie sizes together by arithmetic that symbols of their own cannot know.
bool may_be_undecidable(const Op& op) {
  return std::holds_alternative<Reshape>(op) || std::holds_alternative<Convolution>(op) || std::holds_alternative<Pool>(op) ||
         std::holds_alternative<Slice>(op) || std::holds_alternative<Attention>(op) ||
         std::holds_alternative<AttentionGradient>(op);  // heads that share a key's
}

class EachSymbolic : public ::testing::TestWithParam<std::string> {};

TEST_P(EachSymbolic, GivesTheValuesOfConstantSizes) {
  int matched = 0;
  for (const Sample& sample : samples()) {
    if (name(sample.op) != GetParam()) continue;
    SCOPED_TRACE(describe(sample));
    const bool matches = matches_constant_sizes(sample);
    matched += matches ? 1 : 0;
    if (!may_be_undecidable(sample.op)) { EXPECT_TRUE(matches); }
    if (HasFailure()) return;
  }
  // These get symbolic sizes that fit from the gradient of their forward op only.
  const std::set<std::string> gradients_alone = {"average_pool_gradient", "convolution_input_gradient", "convolution_weight_gradient"};
  if (!gradients_alone.contains(GetParam())) { EXPECT_GT(matched, 0); }
}

INSTANTIATE_TEST_SUITE_P(Ops, EachSymbolic, ::testing::ValuesIn(symbolic_names()), [](const auto& info) { return info.param; });

}  // namespace symbolic_test
}  // namespace stepgraph::testing
