// SPDX-License-Identifier: Apache-2.0
// A look at memory for numbers that are none, at the speed of reading it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include "stepgraph/program/step_plan.h"
#include "stepgraph/tensor/dtype.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// True of integers.
bool all_finite(DType dtype, const std::byte* elements, int64_t count);
inline bool all_finite(const Literal& value) { return all_finite(value.dtype(), value.data(), value.count()); }

/// The states, by index, that the entry writes by an instruction which does not say when a number is not finite (FormOperand::is_watched).
std::set<int> unwatched_states(const StepPlan& plan, const PlanEntry& entry);

}  // namespace stepgraph
