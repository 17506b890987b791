// SPDX-License-Identifier: Apache-2.0
// A failing program made small.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph::testing {

struct SmallProgram {
  Module module;
  std::vector<Literal> inputs;
  /// The module in text form and what goes in.
  std::string text() const;
};
using Fails = std::function<bool(const Module& module, const std::vector<Literal>& inputs)>;
/// `module` has one entry and fails. Outputs go, then nodes become inputs of the values that the oracle gives them, as long as what is left fails. An exception of
/// `fails` is not a failure: what is left is no program any more.
SmallProgram shrink(Module module, std::vector<Literal> inputs, const SymbolValues& symbols, const Fails& fails);

}  // namespace stepgraph::testing
