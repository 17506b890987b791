// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "stepgraph/reference/interpreter.h"

namespace stepgraph {
namespace {

std::string input_text(const Graph& graph, size_t index) {
  const Role& role = graph.inputs[index].role;
  std::string result = graph.name + ": input ";
  if (!role.name.empty()) return result + "'" + role.name + "'";
  result += std::to_string(index);
  return role.kind == RoleKind::None ? result : result + " (" + std::string(name(role.kind)) + ")";
}

/// A size of an input whose expression still holds unknown symbols.
struct Equation {
  size_t input, dim;
  Dim left;
  int64_t right;
};
std::string equation_text(const Graph& graph, const Equation& equation) {
  const TensorType& type = graph.type(graph.inputs[equation.input].value);
  return input_text(graph, equation.input) + ": dim " + std::to_string(equation.dim) + " is " + std::to_string(equation.right) + ", wanted " +
         type.shape[equation.dim].text();
}

/// The value of the one symbol of a linear equation; nothing for other equations. UserError when no integer solves it.
std::optional<int64_t> solve(const Graph& graph, const Equation& equation) {
  const std::optional<LinearDim> linear = as_linear(equation.left);
  if (!linear) return std::nullopt;
  int64_t rest = 0;
  if (__builtin_sub_overflow(equation.right, linear->offset, &rest) || rest % linear->slope != 0)
    throw UserError(equation_text(graph, equation) + " with an integer '" + linear->symbol + "'");
  return rest / linear->slope;
}

void check_range(const Graph& graph, const Symbol& symbol, int64_t value, const Equation* from) {
  std::string wanted;
  if (value < symbol.minimum || value > symbol.maximum) {
    wanted =
        symbol.maximum == INT64_MAX ? "at least " + std::to_string(symbol.minimum) : std::to_string(symbol.minimum) + " to " + std::to_string(symbol.maximum);
  } else if (symbol.multiple_of > 1 && value % symbol.multiple_of != 0) {
    wanted = "a multiple of " + std::to_string(symbol.multiple_of);
  } else {
    return;
  }
  const std::string where = from ? equation_text(graph, *from) + ", so " : graph.name + ": ";
  throw UserError(where + "size '" + symbol.name + "' is " + std::to_string(value) + ", wanted " + wanted);
}

/// Derived symbols stand for what they are made of: an equation tells the values of the others.
std::vector<Equation> check_inputs(const Module& module, const Graph& graph, std::span<const Literal> inputs) {
  if (inputs.size() != graph.inputs.size())
    throw UserError(graph.name + ": found " + std::to_string(inputs.size()) + " inputs, wanted " + std::to_string(graph.inputs.size()));
  std::vector<Equation> equations;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = graph.type(graph.inputs[i].value);
    if (inputs[i].dtype() != type.dtype)
      throw UserError(input_text(graph, i) + ": found dtype " + std::string(name(inputs[i].dtype())) + ", wanted " + text(type));
    if (inputs[i].rank() != type.rank()) {
      const Shape found(inputs[i].sizes().begin(), inputs[i].sizes().end());
      throw UserError(input_text(graph, i) + ": found shape " + text(found) + ", wanted " + text(type));
    }
    for (size_t d = 0; d < type.rank(); ++d) equations.push_back({i, d, module.symbols.expand(type.shape[d]), inputs[i].sizes()[d]});
  }
  return equations;
}

}  // namespace

std::optional<LinearDim> as_linear(const Dim& expression) {
  const auto symbols = expression.symbols();
  if (symbols.size() != 1) return std::nullopt;
  LinearDim linear{symbols[0]};
  try {
    linear.offset = evaluate(expression, {{linear.symbol, 0}});
    linear.slope = evaluate(expression - Dim(linear.offset), {{linear.symbol, 1}});
    if (linear.slope == 0 || Dim::symbol(linear.symbol) * Dim(linear.slope) + Dim(linear.offset) != expression) return std::nullopt;
  } catch (const UserError&) {  // a division by the symbol, or an overflow: not linear
    return std::nullopt;
  }
  return linear;
}

SymbolValues solve_symbols(const Module& module, const Graph& graph, std::span<const Literal> inputs, const SymbolValues& known) {
  std::vector<Equation> open = check_inputs(module, graph, inputs);
  SymbolValues values = known;
  for (const auto& [symbol, value] : known)
    if (const Symbol* declared = module.symbols.find(symbol)) check_range(graph, *declared, value, nullptr);
  while (true) {
    std::vector<Equation> rest;
    bool progress = false;
    for (Equation& equation : open) {
      equation.left = substitute(equation.left, values);
      if (equation.left.is_constant()) {
        if (equation.left.constant() == equation.right) continue;
        const Dim& wanted = graph.type(graph.inputs[equation.input].value).shape[equation.dim];
        throw UserError(equation_text(graph, equation) + (wanted.is_constant() ? "" : ", which is " + std::to_string(equation.left.constant())));
      }
      const std::optional<int64_t> value = solve(graph, equation);
      if (!value) {
        rest.push_back(equation);
        continue;
      }
      const std::string symbol = equation.left.symbols()[0];
      if (const Symbol* declared = module.symbols.find(symbol)) check_range(graph, *declared, *value, &equation);
      values[symbol] = *value;
      progress = true;
    }
    open = std::move(rest);
    if (open.empty()) {
      module.symbols.add_derived(values);
      return values;
    }
    if (!progress)
      throw UserError(equation_text(graph, open[0]) + "; this does not tell the value of '" + open[0].left.symbols()[0] + "', which must be given");
  }
}

}  // namespace stepgraph
