// SPDX-License-Identifier: Apache-2.0
// Whether a job's data fits its model, told before the first step: fields, dtypes, sizes, numbers of rows, labels and tokens.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/train/job.h"

namespace stepgraph {

/// Sizes that a batch may have: a model that was captured or exported with constant sizes has one.
struct RowLimits {
  int64_t minimum = 1, maximum = INT64_MAX, multiple_of = 1;
  bool is_fixed() const { return minimum == maximum; }
  bool allows(int64_t rows) const { return rows >= minimum && rows <= maximum && rows % multiple_of == 0; }
};
/// Of one batch of the module's entry eval, which is one micro-batch of its entry step.
RowLimits row_limits(const Module& module);

struct EvaluationPlan {
  int64_t batch = 0;
  int64_t samples = 0;  ///< those of the test set that are in a batch that the model takes
  std::string note;     ///< for the user, if some are left out
};
/// `batch` is what evaluations should have; if it was not `asked` for it gives way to the model's limits. UserError if it cannot, or if no sample is left.
EvaluationPlan plan_evaluation(const Module& module, int64_t test_samples, int64_t batch, bool asked);

/// UserError for an input that the model has not.
void check_bindings(const std::map<std::string, std::string>& bind, const Module& module);
/// UserError for data that the first step, the last batch of an epoch or an evaluation would fail on. Returns notes for the user.
std::vector<std::string> check_data(const TrainJob& job, const Trainer& trainer, const SizeGuards& guards, const Splits& data);

}  // namespace stepgraph
