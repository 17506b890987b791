// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/usual_size.h"

#include <algorithm>

namespace stepgraph {

std::optional<int64_t> usual_size(const SymbolTable& symbols, const Dim& dim) {
  constexpr int64_t usual_batch = 8;
  SymbolValues values;
  for (const Symbol& symbol : symbols.all()) {
    if (symbol.kind == SymbolKind::Size) {
      const int64_t wanted = std::clamp(usual_batch, symbol.minimum, symbol.maximum);
      values[symbol.name] = std::max(wanted / symbol.multiple_of, int64_t{1}) * symbol.multiple_of;
    }
    if (symbol.kind == SymbolKind::Coordinate) values[symbol.name] = 0;
  }
  symbols.add_derived(values);
  const std::vector<std::string> names = dim.symbols();
  if (!std::all_of(names.begin(), names.end(), [&](const std::string& name) { return values.contains(name); })) return std::nullopt;
  return evaluate(dim, values);
}

}  // namespace stepgraph
