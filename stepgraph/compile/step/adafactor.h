// SPDX-License-Identifier: Apache-2.0
// Adafactor (Shazeer, Stern, 2018) as torch.optim.Adafactor: second moments of a matrix are kept as one row and one column.
#pragma once
#include <vector>
#include "stepgraph/compile/step/optimizer.h"

namespace stepgraph {

/// Of one step, in the dtype of the state.
struct AdafactorScalars {
  Value rate;    ///< as the schedule gives it; the step is at most 1 / sqrt(number)
  Value left;    ///< what decoupled weight decay leaves of a parameter
  Value fresh;   ///< share of the new squares in the moments
  Value number;  ///< of this step, from 1
};
/// Declares the state NAME.row_var [..., R, 1] and NAME.col_var [..., 1, C] (two dims or more) or NAME.variance, appends the new parameter and states to
/// `updates`, and returns the new parameter.
Value adafactor(const Optimizer& optimizer, const OptimizedParameter& parameter, const AdafactorScalars& scalars, bool decays,
                std::vector<StateUpdate>& updates);

}  // namespace stepgraph
