// SPDX-License-Identifier: Apache-2.0
// Functions of f32 that are no instructions, as instructions: on one float or on a vector of them, to the same bits. Fused multiply-adds are explicit.
// Errors are below, in units of the last place of the exact result: exp 1.25, log 1, tanh 1.75, erf 1.75, sin 2, cos 2, sigmoid 2.5, rsqrt 1.5 (LongCodegenMath
// tries all floats). Denormal arguments and results, zeros with their signs, infinities and NaN are as those of the C library.
#pragma once
#include <cstdint>
#include <string_view>

namespace llvm {
class IRBuilderBase;
class Value;
class Type;
}  // namespace llvm

namespace stepgraph {

/// Lanes of every vector in generated code, whatever the dtype and the instruction set.
inline constexpr int vector_lanes = 16;

/// `scalar`, or a vector of it where `like` is a vector.
llvm::Type* type_like(llvm::Value* like, llvm::Type* scalar);
llvm::Value* real_like(llvm::Value* like, double value);                ///< of the type of `like`
llvm::Value* integer_like(llvm::Value* like, int bits, int64_t value);  ///< an integer of so many bits, as many as `like`

llvm::Value* emit_exp(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_log(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_tanh(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_erf(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_sigmoid(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_sin(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_cos(llvm::IRBuilderBase& b, llvm::Value* x);

/// The C library's function of doubles, lane by lane: x (and y, if not null) are doubles or vectors of them.
llvm::Value* emit_library_call(llvm::IRBuilderBase& b, std::string_view function, llvm::Value* x, llvm::Value* y = nullptr);

}  // namespace stepgraph
