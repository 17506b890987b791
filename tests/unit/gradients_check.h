// SPDX-License-Identifier: Apache-2.0
// Small f64 programs, their gradients by the engine, and central differences to compare with.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph::gradient_tests {

/// Builds a scalar from the inputs.
using ScalarBody = std::function<Value(Builder&, std::span<const Value>)>;
using GraphBody = std::function<std::vector<Value>(Builder&, std::span<const Value>)>;

struct Program {
  std::vector<Literal> inputs;
  ScalarBody body;
  /// Types that differ from those of the literals: symbolic sizes, each symbol from 0 to 100.
  std::vector<Shape> shapes = {};
};
struct Differentiated {
  Module module;  ///< verified; its one graph returns the scalar and the gradients that exist
  double value = 0;
  std::vector<std::optional<Literal>> gradients;
};
Differentiated differentiate(const Program& program);
/// First derivatives, and with `second` the derivatives of a weighted sum of them, against central differences.
void expect_gradients(const Program& program, bool second = true);

/// A graph of the builder's module.
GraphId make_graph(Builder& outer, const std::string& name, std::vector<TensorType> inputs, const GraphBody& body);
TensorType f64_type(const Shape& shape);
Literal f64(const Sizes& sizes, const std::vector<double>& values);
/// Repeatable numbers in (-1, 1), none near zero.
Literal some(const Sizes& sizes, int64_t start = 0);
/// Nodes of that kind in all graphs.
template <class T>
int64_t count_all(const Module& module) {
  int64_t count = 0;
  for (const Graph& graph : module.graphs)
    for (const Node& node : graph.nodes) count += std::holds_alternative<T>(node.op) ? 1 : 0;
  return count;
}

}  // namespace stepgraph::gradient_tests
