// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/codegen/emit_lanes.h"

#include <llvm/IR/IRBuilder.h>

namespace stepgraph {
namespace {

/// Lanes [from, from + count) of a vector.
llvm::Value* some_lanes(llvm::IRBuilderBase& b, llvm::Value* vector, int from, int count) {
  llvm::SmallVector<int, 16> lanes;
  for (int lane = 0; lane < count; ++lane) lanes.push_back(from + lane);
  return b.CreateShuffleVector(vector, lanes);
}

}  // namespace

llvm::Value* fold_lanes(llvm::IRBuilderBase& b, ReduceKind kind, DType dtype, llvm::Value* lanes) {
  for (int half = vector_lanes / 2; half > 0; half /= 2) lanes = emit_combine(b, kind, dtype, some_lanes(b, lanes, 0, half), some_lanes(b, lanes, half, half));
  return b.CreateExtractElement(lanes, uint64_t{0});
}

llvm::Value* fold_best(llvm::IRBuilderBase& b, bool is_largest, DType dtype, llvm::Value* best, llvm::Value* numbers) {
  for (int half = vector_lanes / 2; half > 0; half /= 2) {
    llvm::Value *x = some_lanes(b, best, 0, half), *y = some_lanes(b, best, half, half);
    llvm::Value *x_at = some_lanes(b, numbers, 0, half), *y_at = some_lanes(b, numbers, half, half);
    llvm::Value* is_equal = b.CreateNot(emit_is_better(b, is_largest, dtype, x, y));
    llvm::Value* takes = b.CreateOr(emit_is_better(b, is_largest, dtype, y, x), b.CreateAnd(is_equal, b.CreateICmpSLT(y_at, x_at)));
    best = b.CreateSelect(takes, y, x);
    numbers = b.CreateSelect(takes, y_at, x_at);
  }
  return b.CreateExtractElement(numbers, uint64_t{0});
}

}  // namespace stepgraph
