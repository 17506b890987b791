// SPDX-License-Identifier: Apache-2.0
// In place of code_loader.cpp in a build without LLVM.
#include "stepgraph/base/error.h"
#include "stepgraph/run/device/code_loader.h"

namespace stepgraph {

std::unique_ptr<LoadedCode> load_code(std::span<const FormCode>) {
  throw UserError("this build has no code generation: configure with -D STEPGRAPH_CODEGEN=ON, or run by the reference interpreter");
}

}  // namespace stepgraph
