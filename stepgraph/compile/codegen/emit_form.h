// SPDX-License-Identifier: Apache-2.0
// Machine code for a form, by LLVM. A pure function: equal forms and targets give equal bytes.
#pragma once
#include <string>
#include "stepgraph/program/form.h"
#include "stepgraph/program/target.h"

namespace stepgraph {

/// Whether this build has code generation at all (the CMake option STEPGRAPH_CODEGEN).
bool has_code_generation();
/// "LLVM 19.1.7": the library that is in use.
std::string code_generator_version();
/// Whether a form can hold a scalar of this kind; what it cannot is left to EvaluateCall.
bool can_emit(UnaryKind kind, DType dtype);
bool can_emit(BinaryKind kind, DType dtype);
bool can_convert(DType from, DType to);

/// InternalError for a form that is not well formed or holds what cannot be emitted. Any number of threads may emit at once.
FormCode emit_form(const Form& form, const Target& target);

}  // namespace stepgraph
