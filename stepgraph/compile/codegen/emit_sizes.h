// SPDX-License-Identifier: Apache-2.0
// Dims as instructions, each once, where the call begins.
#pragma once
#include <map>
#include "stepgraph/compile/codegen/emit_math.h"
#include "stepgraph/tensor/dim.h"

namespace stepgraph {

struct Atom;

class SizeEmitter {
 public:
  /// `entry` stands at the end of the block that runs first. Symbols are those of a form with so many.
  SizeEmitter(llvm::IRBuilderBase& entry, int size_count) : entry_(entry), size_count_(size_count) {}
  void read_from(llvm::Value* sizes) { sizes_ = sizes; }
  llvm::Value* size(const Dim& dim);

 private:
  llvm::Value* size_of_atom(const Atom& atom);
  llvm::Value* floor_division(llvm::Value* a, llvm::Value* c);

  llvm::IRBuilderBase& entry_;
  int size_count_;
  llvm::Value* sizes_ = nullptr;
  std::map<Dim, llvm::Value*> known_;
};

}  // namespace stepgraph
