// SPDX-License-Identifier: Apache-2.0
// The model of a job on the way to its plan on this machine, for verbs that look at it without running it.
#pragma once
#include "stepgraph/backend/backend.h"
#include "stepgraph/backend/fit_budget.h"
#include "stepgraph/train/job.h"

namespace stepgraph {

/// As it is written, with what is to be said of it said. UserError if the job names none.
Module read_model(const TrainJob& job);

class PlannedModel {
 public:
  /// UserError for a model that has no plan.
  explicit PlannedModel(const TrainJob& job);
  /// The program of a rank, without the entry forward.
  const Module& local() const { return local_; }
  /// With batches of the job's size as the largest.
  const BackendOptions& options() const { return options_; }
  const Target& target() const { return target_; }
  /// `report` may be null.
  StepPlan plan(PlanReport* report = nullptr) const { return compile_plan(local_, options_, target_, nullptr, report); }

 private:
  BackendOptions options_;
  Target target_;
  Module local_;
};

}  // namespace stepgraph
