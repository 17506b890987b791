// SPDX-License-Identifier: Apache-2.0
// A module of LLVM made into an object file. Deterministic: it depends on the module and the instruction set alone, not on the machine that it runs on.
#pragma once
#include <memory>
#include <string>
#include "stepgraph/program/target.h"

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace stepgraph {

/// AVX2 is x86-64-v3, AVX-512 x86-64-v4. No operations are fused but those that say so.
std::unique_ptr<llvm::TargetMachine> make_target_machine(InstructionSet isa);
/// Sets the module's layout and triple, optimises and compiles it. InternalError if the module is not well formed.
std::string compile_module(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace stepgraph
