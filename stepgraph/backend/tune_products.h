// SPDX-License-Identifier: Apache-2.0
// Measures which library multiplies the matrices of a plan fastest on this machine, and in which pieces.
#pragma once
#include "stepgraph/program/step_plan.h"
#include "stepgraph/program/tuning.h"

namespace stepgraph {

/// Adds to the record the products of the plan that it does not have, those first that a step spends most on; what does not get its turn within `seconds` is
/// left out. True if anything was added. On the plan's number of threads, operands hot where they fit, by what threads spend of their processors.
bool tune_products(const StepPlan& plan, Tuning& tuning, double seconds);

}  // namespace stepgraph
