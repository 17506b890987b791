// SPDX-License-Identifier: Apache-2.0
// Trainers of tests that are not about a back end run on the oracle: it compiles nothing.
#pragma once
#include <utility>
#include "stepgraph/train/trainer.h"

namespace stepgraph::testing {

inline TrainerOptions on_reference(TrainerOptions options = {}) {
  options.backend.backend = Backend::Reference;
  return options;
}

}  // namespace stepgraph::testing
