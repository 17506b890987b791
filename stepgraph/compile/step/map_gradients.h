// SPDX-License-Identifier: Apache-2.0
// One element-wise body over all gradients of a step: a MapTensors for each dtype among them, however many parameters a model has.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "stepgraph/compile/step/optimizer.h"

namespace stepgraph {

/// From a gradient and the shared scalars, all scalars inside: what it becomes (if anything), then what is reduced over all gradients.
using GradientBody = std::function<std::vector<Value>(const Value& gradient, const std::vector<Value>& shared)>;
struct MapGradients {
  std::string name;           ///< of the body
  std::vector<Value> shared;  ///< scalars
  bool replaces = false;      ///< the body's first output is the gradient's new value
  int64_t reduced = 0;        ///< how many follow, each reduced by `reduce`
  ReduceKind reduce = ReduceKind::Sum;
};
/// Replaces the gradients; returns the reductions, those of one dtype beside each other: [dtypes][reduced].
std::vector<std::vector<Value>> map_gradients(std::vector<OptimizedParameter>& parameters, const MapGradients& what, const GradientBody& body);

}  // namespace stepgraph
