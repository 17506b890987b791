// SPDX-License-Identifier: Apache-2.0
// The way from a Local module to the flat one that kernels are made of: one list of passes. A pure function of its arguments.
#pragma once
#include <string>
#include <vector>
#include "stepgraph/compile/passes/pass.h"

namespace stepgraph {

/// The names of its passes, in order.
const std::vector<std::string>& flat_pass_names();

/// Entries without calls, rewritten for kernels. `skip` names optional passes; `stop_at` the last one, empty: all.
Module flatten_for_kernels(Module local, const std::vector<std::string>& skip = {}, PassLog* log = nullptr, const std::string& stop_at = {});

}  // namespace stepgraph
