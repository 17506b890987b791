// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/codegen/emit_form.h"

namespace stepgraph {

bool can_emit(UnaryKind kind, DType dtype) {
  // Formulas of the project's own, iterations both.
  if (kind == UnaryKind::Erfinv || kind == UnaryKind::Lgamma) return false;
  return accepts(kind, dtype);
}
bool can_emit(BinaryKind kind, DType dtype) { return accepts(kind, dtype); }
bool can_convert(DType, DType) { return true; }

}  // namespace stepgraph
