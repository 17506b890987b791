// SPDX-License-Identifier: Apache-2.0
// Gradients of element-wise ops, in PyTorch's conventions at ties and corners. Each is made of functions that have gradients themselves, so any order works.
#pragma once
#include <optional>
#include <vector>
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

std::vector<std::optional<Value>> unary_gradient(const GradientRequest& request);
std::vector<std::optional<Value>> binary_gradient(const GradientRequest& request);
std::vector<std::optional<Value>> polygamma_gradient(const GradientRequest& request);
std::vector<std::optional<Value>> select_gradient(const GradientRequest& request);
std::vector<std::optional<Value>> convert_gradient(const GradientRequest& request);

}  // namespace stepgraph
