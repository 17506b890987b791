// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/codegen/emit_object.h"

#include <mutex>

#include <llvm-c/Core.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/codegen/emit_form.h"

namespace stepgraph {
namespace {

constexpr const char* triple = "x86_64-unknown-linux-gnu";

/// What the emitter leaves to others: accumulators in memory, addresses computed in full, invariants of masks. It vectorises and hoists by itself.
void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder passes(&machine);
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(graphs);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::FunctionPassManager manager;
  manager.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  manager.addPass(llvm::EarlyCSEPass(true));
  manager.addPass(llvm::InstCombinePass());
  manager.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  manager.addPass(llvm::EarlyCSEPass(true));
  manager.addPass(llvm::SimplifyCFGPass());
  manager.addPass(llvm::ADCEPass());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) manager.run(function, functions);
  }
}

}  // namespace

std::string code_generator_version() {
  unsigned major = 0, minor = 0, patch = 0;
  LLVMGetVersion(&major, &minor, &patch);
  return "LLVM " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(InstructionSet isa) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  SG_CHECK(target != nullptr, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  const char* cpu = isa == InstructionSet::Avx512 ? "x86-64-v4" : "x86-64-v3";
  // Sixteen floats are one register where there are such.
  const char* features = isa == InstructionSet::Avx512 ? "-prefer-256-bit" : "";
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, cpu, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  SG_CHECK(machine != nullptr, "a target machine for x86-64");
  return machine;
}

std::string compile_module(llvm::Module& module, llvm::TargetMachine& machine) {
  std::string error;
  llvm::raw_string_ostream errors(error);
  SG_CHECK(!llvm::verifyModule(module, &errors), errors.str());
  optimise(module, machine);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager code;
  SG_CHECK(!machine.addPassesToEmitFile(code, out, nullptr, llvm::CodeGenFileType::ObjectFile), "object files of x86-64");
  code.run(module);
  return {bytes.begin(), bytes.end()};
}

}  // namespace stepgraph
