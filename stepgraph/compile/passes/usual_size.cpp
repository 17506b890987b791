// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/usual_size.h"

#include <algorithm>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

int64_t usual_value(const Symbol& symbol) {
  constexpr int64_t usual_batch = 8;
  const int64_t wanted = std::clamp(usual_batch, symbol.minimum, symbol.maximum);
  const int64_t above = wanted % symbol.multiple_of == 0 ? wanted : (wanted / symbol.multiple_of + 1) * symbol.multiple_of;
  return above <= symbol.maximum ? above : symbol.maximum / symbol.multiple_of * symbol.multiple_of;
}

}  // namespace

std::optional<int64_t> usual_size(const SymbolTable& symbols, const Dim& dim) try {
  SymbolValues values;
  for (const Symbol& symbol : symbols.all()) {
    if (symbol.kind == SymbolKind::Size) values[symbol.name] = usual_value(symbol);
    if (symbol.kind == SymbolKind::Coordinate) values[symbol.name] = 0;
  }
  symbols.add_derived(values);
  const std::vector<std::string> names = dim.symbols();
  if (!std::all_of(names.begin(), names.end(), [&](const std::string& name) { return values.contains(name); })) return std::nullopt;
  return evaluate(dim, values);
} catch (const UserError&) {
  return std::nullopt;  // a division by 0 or too large a number, at this size
}

}  // namespace stepgraph
