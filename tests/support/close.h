// SPDX-License-Identifier: Apache-2.0
// Whether a compiled value is the oracle's, within what its dtype allows.
#pragma once
#include <string>
#include "stepgraph/tensor/literal.h"

namespace stepgraph::testing {

/// "" when they agree, else what differs most. Integers and bools to the bit; NaN and infinities where the oracle has them; floats within `tolerance` of the larger
/// of the oracle's value and the mean magnitude of all of them.
std::string compare_values(const Literal& found, const Literal& wanted, double tolerance);
/// For one op, or a few: f64 1e-12, f32 4e-6, halves one step.
double tolerance_of(DType dtype);

}  // namespace stepgraph::testing
