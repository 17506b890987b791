// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "stepgraph/compile/codegen/emit_form.h"

namespace stepgraph {
namespace {

enum class TakenDTypes : uint8_t { Floats, Numbers, Bits, Anything };
bool takes(TakenDTypes taken, DType dtype) {
  switch (taken) {
    case TakenDTypes::Floats: return is_floating(dtype);
    case TakenDTypes::Numbers: return dtype != DType::Bool;
    case TakenDTypes::Bits: return !is_floating(dtype);
    case TakenDTypes::Anything: return true;
  }
  return false;
}

#define STEPGRAPH_TAKEN(kind, text, taken, ...) TakenDTypes::taken,
constexpr std::array unary_taken{STEPGRAPH_UNARY_KINDS(STEPGRAPH_TAKEN)};
constexpr std::array binary_taken{STEPGRAPH_BINARY_KINDS(STEPGRAPH_TAKEN)};
#undef STEPGRAPH_TAKEN

}  // namespace

bool can_emit(UnaryKind kind, DType dtype) {
  // Formulas of the project's own, iterations both.
  if (kind == UnaryKind::Erfinv || kind == UnaryKind::Lgamma) return false;
  return takes(unary_taken[static_cast<size_t>(kind)], dtype);
}
bool can_emit(BinaryKind kind, DType dtype) { return takes(binary_taken[static_cast<size_t>(kind)], dtype); }
bool can_convert(DType, DType) { return true; }

}  // namespace stepgraph
