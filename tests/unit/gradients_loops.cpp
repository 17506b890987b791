// SPDX-License-Identifier: Apache-2.0
// Derivatives through loops: carried, scanned, stacked and invariant values, in both directions, nested, of any number of trips.
#include <gtest/gtest.h>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/reference/interpreter.h"
#include "tests/unit/gradients_check.h"

namespace stepgraph::gradient_tests {
namespace gradients_loops_test {

struct LoopShape {
  Dim trips = 3;
  int64_t carried = 0, scanned = 0;
  bool reverse = false;
};

/// A loop over `inputs` in a loop's order. The body also gets the iteration number as f64.
using LoopBody = std::function<std::vector<Value>(Builder&, std::span<const Value>, Value iteration)>;
std::vector<Value> loop(Builder& builder, const LoopShape& shape, const std::vector<Value>& inputs, const LoopBody& body) {
  Loop op;
  op.symbol = "i" + std::to_string(builder.module().graphs.size());
  op.trip_count = shape.trips;
  op.carried = shape.carried;
  op.scanned = shape.scanned;
  op.reverse = shape.reverse;
  builder.module().symbols.declare({op.symbol, SymbolKind::Iteration, 0, 100, 1, {}});
  std::vector<TensorType> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    types.push_back(inputs[i].type());
    const auto place = static_cast<int64_t>(i);
    if (place >= op.carried && place < op.carried + op.scanned) types.back().shape.erase(types.back().shape.begin());
  }
  op.body = make_graph(builder, "body", types, [&](Builder& inner, std::span<const Value> in) {
    return body(inner, in, size_value(inner, DType::F64, Dim::symbol(op.symbol)));
  });
  return builder.emit(op, inputs);
}

/// h = tanh(w h + u_t), states stacked; the sum of the last state and of the weighted stack.
Program recurrence(int64_t trips, bool reverse) {
  return {{some({2}), some({trips, 2}, 3), some({2, 2}, 9)}, [=](Builder& b, std::span<const Value> in) {
            const auto results = loop(b, {trips, 1, 1, reverse}, {in[0], in[1], in[2]}, [](Builder&, std::span<const Value> x, Value) {
              const Value h = tanh(matmul(x[2], x[0]) + x[1]);
              return std::vector<Value>{h, h};
            });
            return sum(results[0]) + sum(results[1] * results[1] * in[1]);
          }};
}

TEST(GradientsOfLoops, Recurrence) {
  for (int64_t trips : {1, 2, 4})
    for (bool reverse : {false, true}) expect_gradients(recurrence(trips, reverse));
}

TEST(GradientsOfLoops, NoTrips) {
  expect_gradients(recurrence(0, false));
  // The start passes through: its gradient is that of the result; the others' is zero.
  const Differentiated found = differentiate(recurrence(0, true));
  EXPECT_EQ(*found.gradients[0], f64({2}, {1, 1}));
  if (found.gradients[2]) {
    EXPECT_EQ(*found.gradients[2], f64({2, 2}, {0, 0, 0, 0}));
  }
}

TEST(GradientsOfLoops, SymbolicTripCount) {
  for (int64_t trips : {0, 1, 3}) {
    Program program = recurrence(trips, false);
    const Dim count = Dim::symbol("T");
    program.shapes = {{2}, {count, 2}, {2, 2}};
    program.body = [=](Builder& b, std::span<const Value> in) {
      const auto results = loop(b, {count, 1, 1}, {in[0], in[1], in[2]}, [](Builder&, std::span<const Value> x, Value) {
        const Value h = tanh(matmul(x[2], x[0]) * x[1]);
        return std::vector<Value>{h, sum(h)};
      });
      return sum(results[0]) + sum(exp(results[1]));
    };
    expect_gradients(program);
  }
}

TEST(GradientsOfLoops, InvariantsOnly) {
  expect_gradients({{some({2}), some({2}, 3)}, [](Builder& b, std::span<const Value> in) {
                      const auto results = loop(b, {3}, {in[0], in[1]}, [](Builder&, std::span<const Value> x, Value i) {
                        return std::vector<Value>{sin(x[0] * (i + 1)) * x[1], x[0]};
                      });
                      return sum(results[0] * results[0]) + sum(exp(results[1]));
                    }});
}

TEST(GradientsOfLoops, ScannedPassesIntoAStack) {
  expect_gradients({{some({3, 2}), some({3, 2}, 3)}, [](Builder& b, std::span<const Value> in) {
                      // The second scanned value is not read; the first comes out as it went in, twice.
                      const auto results = loop(b, {3, 0, 2}, {in[0], in[1]}, [](Builder&, std::span<const Value> x, Value) {
                        return std::vector<Value>{x[0], exp(x[0]), x[0]};
                      });
                      return sum(results[0] * results[1] * in[1]) + sum(results[2] * results[2]);
                    }});
}

TEST(GradientsOfLoops, CarriedValuesChangePlaces) {
  for (int64_t trips : {1, 2, 3, 4})
    expect_gradients({{some({2}), some({2}, 5), some({2}, 7)}, [=](Builder& b, std::span<const Value> in) {
                        const auto results = loop(b, {trips, 3}, {in[0], in[1], in[2]}, [](Builder&, std::span<const Value> x, Value) {
                          return std::vector<Value>{x[1], x[2] * 1.5, sin(x[0])};
                        });
                        return sum(results[0] * results[0] * results[1]);
                      }});
}

TEST(GradientsOfLoops, CarriedThatStaysIsReplacedOrOnlyCounts) {
  expect_gradients({{some({2}), some({2}, 5)}, [](Builder& b, std::span<const Value> in) {
                      const Value count = constant(b, Literal::integer(DType::I64, 1)), start = full(b, DType::F64, {2}, 0.5);
                      const auto results = loop(b, {3, 4}, {in[0], in[1], count, start}, [](Builder& g, std::span<const Value> x, Value) {
                        // stays; replaced by a constant; an integer; becomes dependent in the first iteration
                        return std::vector<Value>{x[0], full(g, DType::F64, {2}, 2), x[2] + 1, x[3] * x[0] * convert(x[2], DType::F64) + x[1]};
                      });
                      return sum(results[0] * results[3]) + sum(results[1] * results[1]) + convert(results[2], DType::F64);
                    }});
}

TEST(GradientsOfLoops, NoPathMeansAbsent) {
  const Differentiated found = differentiate({{some({2}), some({3, 2}), some({2}), some({2})}, [](Builder& b, std::span<const Value> in) {
                                                const auto results = loop(b, {3, 1, 1}, {in[0], in[1], in[2], in[3]}, [](Builder&, std::span<const Value> x, Value) {
                                                  return std::vector<Value>{x[0] * stop_gradient(x[2]) + floor(stop_gradient(x[1]))};
                                                });
                                                return sum(results[0]);
                                              }});
  EXPECT_TRUE(found.gradients[0]);
  for (size_t i : {1U, 2U, 3U}) EXPECT_FALSE(found.gradients[i]) << i;
}

TEST(GradientsOfLoops, CallsInALoopInACall) {
  expect_gradients({{some({2}), some({3, 2}, 3), some({2}, 9)}, [](Builder& b, std::span<const Value> in) {
                      const TensorType row = f64_type({2});
                      const GraphId inner = make_graph(b, "inner", {row, row}, [](Builder&, std::span<const Value> x) {
                        return std::vector<Value>{tanh(x[0] * x[1]) + x[1]};
                      });
                      const GraphId outer = make_graph(b, "outer", {row, f64_type({3, 2}), row}, [&](Builder& g, std::span<const Value> x) {
                        const auto results = loop(g, {3, 1, 1}, {x[0], x[1], x[2]}, [&](Builder& body, std::span<const Value> v, Value i) {
                          const Value h = call(body, inner, std::vector<Value>{v[0] * (i + 1), v[2]})[0];
                          return std::vector<Value>{call(body, inner, std::vector<Value>{h, v[1]})[0], h};
                        });
                        return std::vector<Value>{results[0], sum(results[1], {0})};
                      });
                      const auto first = call(b, outer, std::vector<Value>{in[0], in[1], in[2]});
                      return sum(call(b, outer, std::vector<Value>{first[0], in[1] * 2, first[1]})[0]);
                    }});
}

TEST(GradientsOfLoops, LoopInALoop) {
  expect_gradients({{some({2}), some({2, 3, 2}, 3)}, [](Builder& b, std::span<const Value> in) {
                      const auto outer = loop(b, {2, 1, 1, true}, {in[0], in[1]}, [](Builder& g, std::span<const Value> x, Value i) {
                        const auto inner = loop(g, {3, 1, 1}, {x[0], x[1], x[0] * i}, [](Builder&, std::span<const Value> v, Value j) {
                          return std::vector<Value>{sin(v[0] + v[1] * (j + 1)) * v[2] + v[0], v[0] * v[1]};
                        });
                        return std::vector<Value>{inner[0], inner[1]};
                      });
                      return sum(outer[0]) + sum(outer[1] * outer[1]);
                    }});
}

TEST(GradientsOfLoops, EachIterationsMaskIsItsOwn) {
  for (bool fresh : {true, false}) {
    Module module;
    const GraphId id = module.add_graph("main");
    Builder b(module, id);
    const Value x = b.input({DType::F32, {4, 100}, {}}), seed = b.input({DType::I64, {}, {}}), step = b.input({DType::I64, {}, {}});
    const auto results = loop(b, {4, 0, 1}, {x, fold_in(seed, step)}, [=](Builder&, std::span<const Value> in, Value iteration) {
      return std::vector<Value>{dropout(in[0], 0.5, fresh ? fold_in(in[1], convert(iteration, DType::I64)) : in[1])};
    });
    b.output(results[0]);
    b.output(*gradients(b, sum(results[0]), std::vector<Value>{x})[0]);
    const auto outputs =
        evaluate_graph(module, id, std::vector<Literal>{Literal::full(DType::F32, {4, 100}, 1), Literal::integer(DType::I64, 7), Literal::integer(DType::I64, 0)});
    EXPECT_EQ(outputs[0], outputs[1]);
    bool differ = false;
    for (int64_t i = 0; i < 100; ++i) differ |= outputs[0].at(i) != outputs[0].at(100 + i);
    EXPECT_EQ(differ, fresh);
  }
}

TEST(GradientsOfLoops, AValueWhoseSizeChangesCannotBeKept) {
  // x[0 .. i] is squared: its backward would need slices of all sizes stacked.
  Module module;
  const GraphId id = module.add_graph("main");
  Builder b(module, id);
  const Value x = b.input(f64_type({4}));
  Loop op;
  op.symbol = "i";
  op.trip_count = 3;
  module.symbols.declare({"i", SymbolKind::Iteration, 0, 2, 1, {}});
  op.body = make_graph(b, "body", {x.type()}, [](Builder&, std::span<const Value> in) {
    const Value part = exp(slice(in[0], 0, 0, Dim::symbol("i") + 1));
    return std::vector<Value>{sum(part * part)};
  });
  const Value y = sum(b.emit_one(op, {x}));
  try {
    gradients(b, y, std::vector<Value>{x});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("size depends on the iteration"), std::string::npos) << error.what();
  }
}

}  // namespace gradients_loops_test
}  // namespace stepgraph::gradient_tests
