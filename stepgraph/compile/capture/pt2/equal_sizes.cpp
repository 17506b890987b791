// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/equal_sizes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "stepgraph/base/error.h"

namespace stepgraph::pt2 {
namespace {

using Substitution = std::map<std::string, Dim>;

const Shape* shape_of(const ExportedProgram& program, const std::string& input) {
  const bool is_input = std::any_of(program.inputs.begin(), program.inputs.end(),
                                    [&](const ExportedInput& spec) { return spec.kind == ExportedInput::Kind::UserInput && spec.argument == input; });
  const auto found = program.graph.tensors.find(input);
  return is_input && found != program.graph.tensors.end() ? &found->second.sizes : nullptr;
}

/// One side of a guard as a size, and the inputs that it is of.
struct Side {
  Dim size;
  std::set<std::string> inputs;
};
/// Reads sums and products of numbers and of `L['x'].size()[0]`; nothing for what is written otherwise.
std::optional<Side> read_side(const ExportedProgram& program, std::string_view text) {
  constexpr std::string_view open = "L['", middle = "'].size()[";
  Side side;
  std::string plain;
  while (!text.empty()) {
    if (!text.starts_with(open)) {
      plain += text.front();
      text.remove_prefix(1);
      continue;
    }
    const size_t name_end = text.find(middle), dim_end = name_end == std::string_view::npos ? name_end : text.find(']', name_end + middle.size());
    if (dim_end == std::string_view::npos) return std::nullopt;
    const std::string input(text.substr(open.size(), name_end - open.size()));
    const std::string_view digits = text.substr(name_end + middle.size(), dim_end - name_end - middle.size());
    const Shape* shape = shape_of(program, input);
    if (!shape || digits.size() != 1 || digits[0] < '0' || digits[0] > '9' || static_cast<size_t>(digits[0] - '0') >= shape->size()) return std::nullopt;
    plain += "(" + (*shape)[static_cast<size_t>(digits[0] - '0')].text() + ")";
    side.inputs.insert(input);
    text.remove_prefix(dim_end + 1);
  }
  try {
    side.size = parse_dim(plain);
  } catch (const UserError&) {  // other python
    return std::nullopt;
  }
  return side;
}

std::optional<std::pair<Side, Side>> read_equation(const ExportedProgram& program, std::string_view guard) {
  const size_t equals = guard.find("==");
  if (equals == std::string_view::npos || guard.size() > 1000) return std::nullopt;
  const auto left = read_side(program, guard.substr(0, equals)), right = read_side(program, guard.substr(equals + 2));
  if (!left || !right) return std::nullopt;
  return std::pair{*left, *right};
}

Dim substituted(const Dim& dim, const Substitution& substitution) {
  return dim.substitute([&](const std::string& name) {
    const auto found = substitution.find(name);
    return found == substitution.end() ? std::nullopt : std::optional<Dim>(found->second);
  });
}

bool has_symbol(const Dim& dim, const std::string& symbol) {
  const auto symbols = dim.symbols();
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

/// Two sizes are one: the symbol among them becomes the other.
void unite(Substitution& substitution, const Dim& first, const Dim& second) {
  const Dim a = substituted(first, substitution), b = substituted(second, substitution);
  const bool is_second = b.symbol_name() && !has_symbol(a, *b.symbol_name());
  if (a == b || (!is_second && !(a.symbol_name() && !has_symbol(b, *a.symbol_name())))) return;
  const Substitution one{is_second ? std::pair{*b.symbol_name(), a} : std::pair{*a.symbol_name(), b}};
  for (auto& [symbol, dim] : substitution) dim = substituted(dim, one);
  substitution.insert(*one.begin());
}

void replace_symbols(ExportedProgram& program, const Substitution& substitution) {
  for (auto& [name, meta] : program.graph.tensors)
    for (Dim& size : meta.sizes) size = substituted(size, substitution);
  for (auto& [name, size] : program.graph.sym_ints) size = substituted(size, substitution);
  for (RangeConstraint& range : program.ranges) range.expression = substituted(range.expression, substitution);
}

}  // namespace

void unite_equal_sizes(ExportedProgram& program) {
  for (const std::string& guard : program.guards) {
    const auto equation = read_equation(program, guard);
    if (!equation) continue;
    const auto& [left, right] = *equation;
    if (left.size == right.size || left.inputs.size() != 1 || right.inputs.size() != 1) continue;
    const Shape &a = *shape_of(program, *left.inputs.begin()), &b = *shape_of(program, *right.inputs.begin());
    Substitution substitution;
    if (a.size() == b.size())
      for (size_t d = 0; d < a.size(); ++d) unite(substitution, a[d], b[d]);
    else
      unite(substitution, element_count(a), element_count(b));
    if (substituted(left.size, substitution) == substituted(right.size, substitution)) replace_symbols(program, substitution);
  }
}

}  // namespace stepgraph::pt2
