// SPDX-License-Identifier: Apache-2.0
// Small modules around one sample: the op itself, a scalar of its results, gradients of that scalar; and central differences to compare with.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/compile/ops/builder.h"
#include "tests/ops/samples.h"

namespace stepgraph::testing {

/// A graph "main" with constant shapes and its results.
std::vector<Literal> run_graph(std::span<const Literal> inputs, const std::function<std::vector<Value>(Builder&, std::span<const Value>)>& build);
std::vector<Literal> run_sample(const Op& op, std::span<const Literal> inputs);
TensorType type_of(const Literal& literal);
/// By infer_types, for constant shapes.
std::vector<TensorType> infer_sample(const Op& op, std::span<const Literal> inputs);

/// A scalar as a function of the inputs, built in a graph.
using ScalarBuilder = std::function<Value(Builder&, std::span<const Value>)>;
/// The floating results times fixed numbers, summed; nothing when no result is floating.
std::optional<ScalarBuilder> weighted_results(const Sample& sample);
/// The gradients of a scalar times fixed numbers, summed.
ScalarBuilder weighted_gradients(const ScalarBuilder& scalar, std::span<const Literal> inputs);

/// Compares gradients with central differences in f64, at some elements of each floating input; "" when they agree.
std::string compare_with_differences(const ScalarBuilder& scalar, std::vector<Literal> inputs, int64_t elements_max = 10, double tolerance = 1e-6);

}  // namespace stepgraph::testing
