// SPDX-License-Identifier: Apache-2.0
// The meaning of a form by plain loops: each expression is worked out for all values of all factors, by the op table's formulas in f64. Slow, any form.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "stepgraph/program/form.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph::testing {

struct BadFormIndex {
  int64_t index = 0, size = 0;
};
/// Runs the form on operands (one-dimensional literals, as long as the memory that they stand for), which it changes. Reductions are sums in f64 in row-major
/// order. What an index outside of its bounds reads is the nearest element; one such index is returned.
std::optional<BadFormIndex> interpret_form(const Form& form, std::vector<Literal>& operands, const std::vector<int64_t>& sizes);

}  // namespace stepgraph::testing
