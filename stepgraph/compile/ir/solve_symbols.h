// SPDX-License-Identifier: Apache-2.0
// Values of symbolic sizes, told by tensors of given sizes.
#pragma once
#include <optional>
#include <span>
#include <string>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// An expression slope * symbol + offset of one symbol; nothing for another one.
struct LinearDim {
  std::string symbol;
  int64_t slope = 1, offset = 0;
};
std::optional<LinearDim> as_linear(const Dim& expression);
/// Values of the symbols that `inputs` fix when given for `graph`'s inputs, together with `known`. Checks every dtype, rank, size and range.
SymbolValues solve_symbols(const Module& module, const Graph& graph, std::span<const Literal> inputs, const SymbolValues& known = {});

}  // namespace stepgraph
