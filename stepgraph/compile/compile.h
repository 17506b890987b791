// SPDX-License-Identifier: Apache-2.0
// The pipeline: from a logical module to the program of one place of a mesh. A pure function of its arguments.
#pragma once
#include <string>
#include <vector>
#include "stepgraph/compile/passes/collective_summary.h"
#include "stepgraph/compile/passes/pass.h"
#include "stepgraph/compile/passes/propagate_shardings.h"

namespace stepgraph {

struct CompileOptions {
  Mesh mesh;
  ShardingOptions sharding;
  std::vector<std::string> skip;  ///< optional passes: simplify, cse
  std::string stop_at;            ///< the last pass: simplify, cse, propagate, partition; empty: all
};

/// The module at the Local stage, or at that of `stop_at`.
Module compile_local(Module step, const CompileOptions& options = {}, PassLog* log = nullptr);

}  // namespace stepgraph
