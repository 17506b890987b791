// SPDX-License-Identifier: Apache-2.0
// A vector of partial results made one, by halves.
#pragma once
#include "stepgraph/compile/codegen/emit_scalars.h"

namespace stepgraph {

llvm::Value* fold_lanes(llvm::IRBuilderBase& b, ReduceKind kind, DType dtype, llvm::Value* lanes);
/// The i64 in `numbers` of the lane that is best in `best`; of equal ones the smallest.
llvm::Value* fold_best(llvm::IRBuilderBase& b, bool is_largest, DType dtype, llvm::Value* best, llvm::Value* numbers);

}  // namespace stepgraph
