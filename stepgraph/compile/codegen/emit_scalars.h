// SPDX-License-Identifier: Apache-2.0
// One expression of a form as instructions, on one value or on a vector. In registers bf16 and f16 are floats that are already rounded, bool is one bit, all
// others are as they lie in memory.
#pragma once
#include "stepgraph/compile/codegen/emit_math.h"
#include "stepgraph/program/scalar_kinds.h"
#include "stepgraph/tensor/dtype.h"
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

llvm::Type* register_type(llvm::IRBuilderBase& b, DType dtype);
llvm::Type* memory_type(llvm::IRBuilderBase& b, DType dtype);
llvm::Value* from_memory(llvm::IRBuilderBase& b, DType dtype, llvm::Value* stored);
llvm::Value* to_memory(llvm::IRBuilderBase& b, DType dtype, llvm::Value* value);
/// `bits`: the element as it lies in memory, in the low bytes.
llvm::Value* emit_constant(llvm::IRBuilderBase& b, DType dtype, uint64_t bits);

llvm::Value* emit_unary(llvm::IRBuilderBase& b, UnaryKind kind, DType dtype, llvm::Value* x);
/// Integer division wants a divisor that is not 0.
llvm::Value* emit_binary(llvm::IRBuilderBase& b, BinaryKind kind, DType dtype, llvm::Value* x, llvm::Value* y);
llvm::Value* emit_compare(llvm::IRBuilderBase& b, CompareKind kind, DType dtype, llvm::Value* x, llvm::Value* y);
llvm::Value* emit_convert(llvm::IRBuilderBase& b, DType from, DType to, llvm::Value* x);
llvm::Value* emit_uniform(llvm::IRBuilderBase& b, llvm::Value* key, llvm::Value* element, DType dtype);
/// By the C library in f64, rounded once: the bits of tensor/philox.h on the same library.
llvm::Value* emit_normal(llvm::IRBuilderBase& b, llvm::Value* key, llvm::Value* element, DType dtype);
llvm::Value* emit_fold(llvm::IRBuilderBase& b, llvm::Value* key, llvm::Value* operand);

/// What a reduction adds up in before the one rounding at its end: halves in f32.
llvm::Value* emit_identity(llvm::IRBuilderBase& b, ReduceKind kind, DType dtype);
llvm::Value* emit_combine(llvm::IRBuilderBase& b, ReduceKind kind, DType dtype, llvm::Value* total, llvm::Value* x);
/// Whether blocks of it are joined in f64.
bool joins_in_double(ReduceKind kind, DType dtype);
/// Whether `value` is chosen over `best`, which was first: NaN counts as largest and as smallest.
llvm::Value* emit_is_better(llvm::IRBuilderBase& b, bool largest, DType dtype, llvm::Value* value, llvm::Value* best);

}  // namespace stepgraph
