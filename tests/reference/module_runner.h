// SPDX-License-Identifier: Apache-2.0
// Runs the entries of a captured module on the interpreter with state by name, and small graphs made in a test.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/compile/compile.h"

namespace stepgraph::testing {

using State = std::map<std::string, Literal>;

/// Outputs of an entry by name; metrics keep their ".numerator" and ".denominator".
struct EntryOutputs {
  Literal loss_numerator, loss_denominator, gradient_norm;
  State metrics, gradients, user;
  double loss() const { return loss_numerator.at(0) / loss_denominator.at(0); }
};

class ModuleRunner {
 public:
  explicit ModuleRunner(Module module, int64_t seed = 1);
  /// Runs `step` and takes the new state.
  EntryOutputs step(const State& batch);
  EntryOutputs eval(const State& batch);

  Module module;
  State state;  ///< after `init` at first
  int64_t seed = 1, steps_done = 0;

 private:
  EntryOutputs run(const std::string& entry, const State& batch);
};

using Body = std::function<std::vector<Value>(Builder&, const std::vector<Value>&)>;
/// Outputs of a graph with these inputs.
std::vector<Literal> evaluate(const std::vector<Literal>& inputs, const Body& body);
struct Differentiated {
  Literal value;
  std::vector<std::optional<Literal>> gradients;  ///< of the scalar value, for each input
};
Differentiated differentiate(const std::vector<Literal>& inputs, const std::function<Value(Builder&, const std::vector<Value>&)>& body);

Literal f32(Sizes sizes, std::vector<double> values);
Literal f64(Sizes sizes, std::vector<double> values);
Literal i32(Sizes sizes, std::vector<int64_t> values);
Literal i64(Sizes sizes, std::vector<int64_t> values);
/// Repeatable numbers in [-1, 1).
std::vector<double> some_numbers(size_t count, uint64_t seed = 1);
/// Largest absolute difference over the largest magnitude of `wanted` (or 1e-30).
double relative_difference(const Literal& found, const std::vector<double>& wanted);

}  // namespace stepgraph::testing
