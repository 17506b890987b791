// SPDX-License-Identifier: Apache-2.0
// How much a form does, for the choice of who does it.
#pragma once
#include "stepgraph/program/form.h"

namespace stepgraph {

/// Operations of one element, in those of an addition: a function such as exp counts as 10, a draw as 30.
inline double operations_of(const Form& form) {
  double operations = 0;
  for (const Expr& expr : form.exprs) {
    const auto* unary = std::get_if<UnaryExpr>(&expr.op);
    const auto* binary = std::get_if<BinaryExpr>(&expr.op);
    const bool is_function = (unary != nullptr && unary_takes[static_cast<size_t>(unary->kind)] == Takes::Floats) || (binary != nullptr && binary->kind == BinaryKind::Power);
    operations += is_function ? 10 : std::holds_alternative<DrawExpr>(expr.op) ? 30 : 1;
  }
  return operations;
}

}  // namespace stepgraph
