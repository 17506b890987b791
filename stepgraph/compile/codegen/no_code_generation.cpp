// SPDX-License-Identifier: Apache-2.0
// In place of the files emit_*.cpp in a build without LLVM.
#include "stepgraph/base/error.h"
#include "stepgraph/compile/codegen/emit_form.h"

namespace stepgraph {

bool has_code_generation() { return false; }
std::string code_generator_version() { return "none"; }
FormCode emit_form(const Form&, const Target&) {
  throw UserError("this build has no code generation: configure with -D STEPGRAPH_CODEGEN=ON, or run by the reference interpreter");
}

}  // namespace stepgraph
