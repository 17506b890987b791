// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/flat.h"

#include "stepgraph/compile/passes/canonicalize.h"
#include "stepgraph/compile/passes/cse.h"
#include "stepgraph/compile/passes/flatten.h"
#include "stepgraph/compile/passes/hoist_from_loops.h"
#include "stepgraph/compile/passes/simplify.h"
#include "stepgraph/compile/passes/widen_products.h"

namespace stepgraph {
namespace {

struct FlatPass {
  std::string name;
  Module (*run)(Module);
  bool is_optional = true;
};

/// The order of lines is the order of passes.
const std::vector<FlatPass>& flat_passes() {
  static const std::vector<FlatPass> passes = {
      {"flatten", flatten, false},
      {"flat_simplify", simplify},
      {"flat_cse", merge_common_subexpressions},
      {"canonicalize", canonicalize},
      {"widen_products", widen_products},
      {"hoist", hoist_from_loops},
      {"late_simplify", simplify},
      {"late_cse", merge_common_subexpressions},  // last, so that equal nodes are one
  };
  return passes;
}

}  // namespace

const std::vector<std::string>& flat_pass_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const FlatPass& pass : flat_passes()) result.push_back(pass.name);
    return result;
  }();
  return names;
}

Module flatten_for_kernels(Module local, const std::vector<std::string>& skip, PassLog* log, const std::string& stop_at) {
  SG_CHECK(local.stage == Stage::Local, "flatten_for_kernels wants a local module");
  PassRunner passes(skip, stop_at, log);
  for (const FlatPass& pass : flat_passes())
    local = pass.is_optional ? passes.run_optional(pass.name, std::move(local), pass.run) : passes.run(pass.name, std::move(local), pass.run);
  passes.check_names();
  return local;
}

}  // namespace stepgraph
