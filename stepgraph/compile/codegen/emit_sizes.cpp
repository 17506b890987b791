// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/codegen/emit_sizes.h"

#include <llvm/IR/IRBuilder.h>

#include "stepgraph/base/error.h"
#include "stepgraph/program/form.h"
#include "stepgraph/tensor/dim_expression.h"

namespace stepgraph {

using llvm::Value;

/// Rounded towards minus infinity.
Value* SizeEmitter::floor_division(Value* a, Value* c) {
  Value *zero = entry_.getInt64(0), *rest = entry_.CreateSRem(a, c);
  Value* lower = entry_.CreateAnd(entry_.CreateICmpNE(rest, zero), entry_.CreateXor(entry_.CreateICmpSLT(rest, zero), entry_.CreateICmpSLT(c, zero)));
  return entry_.CreateSub(entry_.CreateSDiv(a, c), entry_.CreateZExt(lower, zero->getType()));
}

Value* SizeEmitter::size_of_atom(const Atom& atom) {
  switch (atom.kind) {
    case AtomKind::Symbol:
      for (int k = 0; k < size_count_; ++k) {
        if (form_symbol(k) != atom.name) continue;
        return entry_.CreateLoad(entry_.getInt64Ty(), entry_.CreateConstGEP1_64(entry_.getInt64Ty(), sizes_, static_cast<uint64_t>(k)));
      }
      check_failed("a size symbol of the form", atom.name, std::source_location::current());
    case AtomKind::FloorDiv: return floor_division(size(atom.args[0]), size(atom.args[1]));
    case AtomKind::Mod: {
      Value *a = size(atom.args[0]), *c = size(atom.args[1]);
      return entry_.CreateSub(a, entry_.CreateMul(floor_division(a, c), c));
    }
    case AtomKind::Min:
    case AtomKind::Max: break;
  }
  Value* best = size(atom.args[0]);
  for (size_t k = 1; k < atom.args.size(); ++k) {
    best = entry_.CreateBinaryIntrinsic(atom.kind == AtomKind::Min ? llvm::Intrinsic::smin : llvm::Intrinsic::smax, best, size(atom.args[k]));
  }
  return best;
}

Value* SizeEmitter::size(const Dim& dim) {
  if (dim.is_constant()) return entry_.getInt64(static_cast<uint64_t>(dim.constant()));
  if (const auto found = known_.find(dim); found != known_.end()) return found->second;
  Value* sum = entry_.getInt64(0);
  for (const Term& term : DimAccess::expression(dim)->terms) {
    Value* product = entry_.getInt64(static_cast<uint64_t>(term.coefficient));
    for (const AtomPtr& atom : term.factors) product = entry_.CreateMul(product, size_of_atom(*atom));
    sum = entry_.CreateAdd(sum, product);
  }
  return known_[dim] = sum;
}

}  // namespace stepgraph
