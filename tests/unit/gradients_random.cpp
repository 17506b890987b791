// SPDX-License-Identifier: Apache-2.0
// Random programs of calls in loops in calls, their first and second derivatives against differences.
#include <gtest/gtest.h>

#include <random>

#include "stepgraph/compile/ops/functions.h"
#include "tests/support/effort.h"
#include "tests/unit/gradients_check.h"

namespace stepgraph::gradient_tests {
namespace gradients_random_test {

const TensorType row = f64_type({2});

/// All values are f64[2] and stay small, so that differences are exact enough.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  /// Adds nodes to the builder and returns `count` of its values.
  std::vector<Value> fill(Builder& builder, std::vector<Value> values, int nodes, int depth, size_t count) {
    for (int i = 0; i < nodes; ++i) {
      std::vector<Value> fresh = node(builder, values, depth);
      values.insert(values.end(), fresh.begin(), fresh.end());
    }
    std::vector<Value> results;
    // Mostly late values, sometimes an input, sometimes one value twice.
    for (size_t i = 0; i < count; ++i) results.push_back(below(4) ? values[values.size() - 1 - below(std::min<size_t>(3, values.size()))] : any(values));
    return results;
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }
  Value any(const std::vector<Value>& values) { return values[below(values.size())]; }
  std::vector<Value> some_of(const std::vector<Value>& values, size_t count) {
    std::vector<Value> chosen;
    for (size_t i = 0; i < count; ++i) chosen.push_back(any(values));
    return chosen;
  }

  std::vector<Value> node(Builder& builder, const std::vector<Value>& values, int depth) {
    switch (depth > 0 ? below(11) : below(7)) {
      case 0: return {any(values) + any(values)};
      case 1: return {tanh(any(values) * any(values))};
      case 2: return {sin(any(values))};
      case 3: return {any(values) * 0.7 + full(builder, DType::F64, {2}, 0.2)};
      case 4: return {flip(any(values), {0}) * any(values) * 0.5};
      case 5: return {where(less(stop_gradient(any(values)), 50), any(values), any(values)) * 0.5};
      case 6: return {tanh(broadcast_to(sum(any(values)), {2}))};
      case 7:
      case 8: return call_node(builder, values, depth);
      default: return loop_node(builder, values, depth);
    }
  }

  struct Callee {
    GraphId graph;
    size_t inputs;
  };
  std::vector<Value> call_node(Builder& builder, const std::vector<Value>& values, int depth) {
    std::vector<Callee>& known = callees_[static_cast<size_t>(depth)];
    if (known.empty() || below(2)) {
      const size_t inputs = 1 + below(3), outputs = 1 + below(3);
      const GraphId graph = make_graph(builder, "callee" + std::to_string(depth), std::vector<TensorType>(inputs, row), [&](Builder& inner, std::span<const Value> in) {
        return fill(inner, {in.begin(), in.end()}, 1 + static_cast<int>(below(4)), depth - 1, outputs);
      });
      known.push_back({graph, inputs});
    }
    const Callee callee = known[below(known.size())];
    return call(builder, callee.graph, some_of(values, callee.inputs));
  }

  std::vector<Value> loop_node(Builder& builder, const std::vector<Value>& values, int depth) {
    Loop op;
    op.symbol = "i" + std::to_string(builder.module().graphs.size());
    builder.module().symbols.declare({op.symbol, SymbolKind::Iteration, 0, 100, 1, {}});
    const auto trips = static_cast<int64_t>(below(4));
    op.trip_count = trips;
    op.carried = static_cast<int64_t>(below(3));
    op.scanned = static_cast<int64_t>(below(3));
    op.reverse = below(2) == 1;
    const size_t invariants = below(3), stacks = below(3);
    const size_t inputs = static_cast<size_t>(op.carried + op.scanned) + invariants;
    if (inputs == 0 || static_cast<size_t>(op.carried) + stacks == 0) return {sin(any(values))};
    op.body = make_graph(builder, "body" + std::to_string(depth), std::vector<TensorType>(inputs, row), [&](Builder& inner, std::span<const Value> in) {
      std::vector<Value> start(in.begin(), in.end());
      start.push_back(broadcast_to(size_value(inner, DType::F64, Dim::symbol(op.symbol)) * 0.3, {2}));
      return fill(inner, start, 1 + static_cast<int>(below(4)), depth - 1, static_cast<size_t>(op.carried) + stacks);
    });
    std::vector<Value> arguments = some_of(values, inputs);
    for (int64_t i = op.carried; i < op.carried + op.scanned; ++i) {
      Value& scanned = arguments[static_cast<size_t>(i)];
      const Value steps = iota(builder, DType::F64, {trips, 2}, 0) * 0.4;
      scanned = broadcast_to(scanned, {trips, 2}) * cos(steps);
    }
    std::vector<Value> results = builder.emit(op, arguments);
    for (size_t i = static_cast<size_t>(op.carried); i < results.size(); ++i) results[i] = sum(results[i], {0}) * 0.4;
    return results;
  }

  std::mt19937 random_;
  std::vector<Callee> callees_[4];
};

TEST(GradientsOfRandomPrograms, AgreeWithDifferences) {
  for (uint32_t seed = 0; seed < testing::rounds(150); ++seed) {
    const Program program{{some({2}), some({2}, 5), some({2}, 9)}, [=](Builder& builder, std::span<const Value> in) {
                            Generator generator(seed);
                            const std::vector<Value> results = generator.fill(builder, {in.begin(), in.end()}, 5, 2, 2);
                            return sum(results[0] * 0.3 + sin(results[1]));
                          }};
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_gradients(program, seed % 3 == 0);
    if (HasFailure()) return;
  }
}

}  // namespace gradients_random_test
}  // namespace stepgraph::gradient_tests
