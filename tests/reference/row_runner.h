// SPDX-License-Identifier: Apache-2.0
// Runs one operator of the importer's table on values, and differentiates it.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/compile/capture/pt2/aten_call.h"

namespace stepgraph::testing {

using RowTensors = std::map<std::string, Literal>;
using RowArguments = std::vector<std::pair<std::string, pt2::Argument>>;

/// Results of one operator, "linear.default": arguments that are tensors, and others.
std::vector<Literal> run_row(const std::string& target, const RowTensors& tensors, const RowArguments& arguments = {}, bool training = true, size_t outputs = 1);

/// The first result y, and the gradients of sum(y * weights) by the arguments' names (all weights 1 if none are given); absent where there is
/// none.
struct RowGradients {
  Literal value;
  std::map<std::string, Literal> gradients;
};
RowGradients differentiate_row(const std::string& target, const RowTensors& tensors, const RowArguments& arguments = {}, const std::vector<double>& weights = {});

}  // namespace stepgraph::testing
