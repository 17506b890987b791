// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/compile.h"

#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/passes/cse.h"
#include "stepgraph/compile/passes/partition.h"
#include "stepgraph/compile/passes/simplify.h"

namespace stepgraph {

Module compile_local(Module module, const CompileOptions& options, PassLog* log) {
  std::vector<std::string> skip = options.skip;
  std::erase(skip, "outline");  // it stands before differentiation, where a model is imported
  PassRunner passes(std::move(skip), options.stop_at, log);
  verify(module);  // the user's: a fault here is a UserError, one after a pass is ours
  module = passes.run_optional("simplify", std::move(module), simplify);
  module = passes.run_optional("cse", std::move(module), merge_common_subexpressions);
  module = passes.run("propagate", std::move(module), [&](Module m) { return propagate_shardings(std::move(m), options.mesh, options.sharding); });
  module = passes.run("partition", std::move(module), partition);
  passes.check_names();
  return module;
}

}  // namespace stepgraph
