// SPDX-License-Identifier: Apache-2.0
// What one run of an entry sends, for the report "a step sends: ...".
#pragma once
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Collectives of one kind over the same axes.
struct CollectiveSummary {
  std::string kind;  ///< "all_reduce", "all_gather", "reduce_scatter"
  std::string axes;  ///< "data" or "data, model:(2)2"
  Dim count = 0;     ///< per run of the entry: calls and trips of loops counted
  Dim bytes = 0;     ///< the same way: of the operand of a reduction, of the result of a gather
};
/// Of a Local module, in order of first use.
std::vector<CollectiveSummary> collectives(const Module& local, GraphId graph);
/// "all_reduce x 12 over data, 1.2 MB; all_gather ..."; "nothing" without collectives. Symbols take `values`; a symbol without a value stays in the text.
std::string text(const std::vector<CollectiveSummary>& summaries, const SymbolValues& values = {});

}  // namespace stepgraph
