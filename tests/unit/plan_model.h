// SPDX-License-Identifier: Apache-2.0
// A machine that runs plans of forms and matmuls over a toy memory, in which each byte holds a tag of what was computed and the buffer that it was written
// through. It knows nothing of intervals and maps: it goes through every element, on two threads, in many orders. What it finds wrong with a plan, the
// verifier must refuse.
#pragma once
#include <string>
#include "stepgraph/program/step_plan.h"

namespace stepgraph::testing {

/// What is wrong with the plan's only entry at these sizes, or "".
std::string unsound_in_model(const StepPlan& plan, const SymbolValues& sizes);

}  // namespace stepgraph::testing
