// SPDX-License-Identifier: Apache-2.0
// One run of one entry on one device, by any back end.
#pragma once
#include <span>
#include <string_view>
#include <vector>
#include "stepgraph/backend/backend.h"

namespace stepgraph {

/// Outputs of the entry, in order. `module` is Logical; sizes of inputs give the values of symbols, unless `symbols` gives them. UserError for inputs that do not
/// fit, as of Interpreter::run.
std::vector<Literal> run_once(const Module& module, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options, const SymbolValues& symbols = {});
/// The same of a Local module of one device.
std::vector<Literal> run_local_once(const Module& local, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options,
                                    const SymbolValues& symbols = {});

}  // namespace stepgraph
