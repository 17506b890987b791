// SPDX-License-Identifier: Apache-2.0
// Derivatives through calls: the callee is differentiated once for each set of needed inputs, and every use adds once.
#include <gtest/gtest.h>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/reference/interpreter.h"
#include "tests/unit/gradients_check.h"

namespace stepgraph::gradient_tests {
namespace gradients_calls_test {

const TensorType row = f64_type({3});
const std::vector<TensorType> two_rows = {row, row};

Value call_one(Builder& builder, GraphId graph, std::initializer_list<Value> inputs) {
  return call(builder, graph, std::vector<Value>(inputs)).at(0);
}
/// tanh(x * w) + x
GraphId layer(Builder& builder) {
  return make_graph(builder, "layer", two_rows, [](Builder&, std::span<const Value> in) { return std::vector<Value>{tanh(in[0] * in[1]) + in[0]}; });
}

TEST(GradientsOfCalls, OneCall) {
  expect_gradients({{some({3}), some({3}, 5)}, [](Builder& b, std::span<const Value> in) { return sum(call_one(b, layer(b), {in[0], in[1]})); }});
}

TEST(GradientsOfCalls, RepeatedAndTied) {
  expect_gradients({{some({3}), some({3}, 5)}, [](Builder& b, std::span<const Value> in) {
                      const GraphId graph = layer(b);
                      Value x = in[0];
                      for (int i = 0; i < 3; ++i) x = call_one(b, graph, {x, in[1]});
                      return sum(x * in[1]);
                    }});
}

TEST(GradientsOfCalls, OneCalleeWithSeveralNeededSets) {
  // The first call needs no gradient of x, the second none of its weight, the third both.
  expect_gradients({{some({3}), some({3}, 5)}, [](Builder& b, std::span<const Value> in) {
                      const GraphId graph = layer(b);
                      const Value fixed = full(b, DType::F64, {3}, 0.4);
                      const Value first = call_one(b, graph, {fixed, in[0]});
                      const Value second = call_one(b, graph, {first, fixed});
                      return sum(call_one(b, graph, {second, in[1]})) + sum(call_one(b, graph, {fixed, fixed}));
                    }});
}

TEST(GradientsOfCalls, Nested) {
  expect_gradients({{some({3}), some({3}, 5)}, [](Builder& b, std::span<const Value> in) {
                      const GraphId inner = layer(b);
                      const GraphId middle = make_graph(b, "middle", two_rows, [&](Builder& g, std::span<const Value> x) {
                        return std::vector<Value>{call_one(g, inner, {sin(call_one(g, inner, {x[0], x[1]})), x[1]})};
                      });
                      const GraphId outer = make_graph(b, "outer", two_rows, [&](Builder& g, std::span<const Value> x) {
                        return std::vector<Value>{call_one(g, middle, {x[0], call_one(g, inner, {x[1], x[0]})}) * x[0]};
                      });
                      return sum(call_one(b, outer, {call_one(b, middle, {in[0], in[1]}), in[1]}));
                    }});
}

TEST(GradientsOfCalls, SeveralResultsSomeUnused) {
  for (int used = 0; used < 3; ++used) {
    expect_gradients({{some({3}), some({3}, 5)}, [used](Builder& b, std::span<const Value> in) {
                        const GraphId graph = make_graph(b, "three", two_rows, [](Builder&, std::span<const Value> x) {
                          return std::vector<Value>{x[0] * x[1], exp(x[1]), sum(x[0] * x[0])};
                        });
                        return sum(call(b, graph, std::vector<Value>{in[0], in[1]}).at(static_cast<size_t>(used)));
                      }});
  }
}

TEST(GradientsOfCalls, StopGradientInside) {
  const Differentiated found = differentiate({{f64({3}, {1, 2, 3})}, [](Builder& b, std::span<const Value> in) {
                                                const GraphId graph = make_graph(b, "half", {row}, [](Builder&, std::span<const Value> x) {
                                                  return std::vector<Value>{x[0] * stop_gradient(x[0])};
                                                });
                                                return sum(call_one(b, graph, {in[0]}));
                                              }});
  ASSERT_TRUE(found.gradients[0]);
  EXPECT_EQ(*found.gradients[0], f64({3}, {1, 2, 3}));
}

TEST(GradientsOfCalls, NoPathMeansAbsent) {
  // w is unused, v only through stop_gradient, u only through an integer; x has a gradient.
  const Differentiated found = differentiate({{some({3}), some({3}), some({3}), some({3})}, [](Builder& b, std::span<const Value> in) {
                                                const GraphId graph = make_graph(b, "partly", {row, row, row, row}, [](Builder&, std::span<const Value> x) {
                                                  const Value whole = convert(convert(x[3], DType::I64), DType::F64);
                                                  return std::vector<Value>{x[0] + stop_gradient(x[2]) + whole};
                                                });
                                                return sum(call(b, graph, in).at(0));
                                              }});
  EXPECT_TRUE(found.gradients[0]);
  for (size_t i : {1U, 2U, 3U}) EXPECT_FALSE(found.gradients[i]) << i;
}

TEST(GradientsOfCalls, NothingDifferentiableInTheCallee) {
  const Differentiated found = differentiate({{some({3})}, [](Builder& b, std::span<const Value> in) {
                                                const GraphId graph = make_graph(b, "cut", {row}, [](Builder&, std::span<const Value> x) {
                                                  return std::vector<Value>{stop_gradient(x[0])};
                                                });
                                                return sum(call_one(b, graph, {in[0]}));
                                              }});
  EXPECT_FALSE(found.gradients[0]);
}

TEST(GradientsOfCalls, OneValueReturnedTwiceAndGivenTwice) {
  expect_gradients({{some({3})}, [](Builder& b, std::span<const Value> in) {
                      const GraphId graph = make_graph(b, "double", two_rows, [](Builder&, std::span<const Value> x) {
                        const Value y = x[0] * exp(x[1]);
                        return std::vector<Value>{y, y, x[1], x[0], x[0]};
                      });
                      const std::vector<Value> y = call(b, graph, std::vector<Value>{in[0], in[0]});
                      return sum(y[0] * y[1] + y[2] * y[3] * 2 + sin(y[4]));
                    }});
}

TEST(GradientsOfCalls, InputsAreReturnedAsTheyAre) {
  expect_gradients({{some({3}), some({3}, 5)}, [](Builder& b, std::span<const Value> in) {
                      const GraphId graph = make_graph(b, "swap", two_rows, [](Builder&, std::span<const Value> x) { return std::vector<Value>{x[1], x[0]}; });
                      const std::vector<Value> y = call(b, graph, in);
                      return sum(y[0] * y[0] * y[1]);
                    }});
}

TEST(GradientsOfCalls, IntegersPassThrough) {
  expect_gradients({{some({4, 2}), Literal::from_integers(DType::I64, {3}, std::vector<int64_t>{2, 0, 2})}, [](Builder& b, std::span<const Value> in) {
                      const GraphId graph = make_graph(b, "look_up", {f64_type({4, 2}), {DType::I64, {3}, {}}}, [](Builder&, std::span<const Value> x) {
                        return std::vector<Value>{x[1], index_select(x[0], 0, x[1])};
                      });
                      const std::vector<Value> y = call(b, graph, in);
                      return sum(exp(y[1])) + sum(exp(index_select(in[0], 0, y[0])));
                    }});
}

TEST(GradientsOfCalls, OfAValueInTheMiddleAndOfTheResultItself) {
  Module module;
  const GraphId id = module.add_graph("main");
  Builder b(module, id);
  const Value x = b.input(row), middle = call_one(b, layer(b), {x, x}), y = sum(middle * middle);
  const std::vector<Value> xs{middle, y, x, x};
  const auto found = gradients(b, y, xs);
  for (const auto& gradient : found) {
    ASSERT_TRUE(gradient);
    b.output(*gradient);
  }
  b.output(middle);
  const auto outputs = evaluate_graph(module, id, std::vector<Literal>{some({3})});
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(outputs[0].at(i), 2 * outputs[4].at(i));
  EXPECT_EQ(outputs[1].at(0), 1);
  EXPECT_EQ(outputs[2], outputs[3]);
}

TEST(GradientsOfCalls, SeedsAreCheckedAndAdd) {
  Module module;
  const GraphId id = module.add_graph("main");
  Builder b(module, id);
  const Value x = b.input(row), y = x * x;
  const std::vector<Value> ys{y, y}, xs{x};
  const std::vector<std::optional<Value>> seeds{full_like(y, 1), full_like(y, 2)};
  b.output(*gradients(b, ys, seeds, xs)[0]);
  EXPECT_EQ(evaluate_graph(module, id, std::vector<Literal>{f64({3}, {1, 2, 3})})[0], f64({3}, {6, 12, 18}));
  const std::vector<std::optional<Value>> wrong{scalar(b, DType::F64, 1), full_like(y, 2)};
  EXPECT_THROW(gradients(b, ys, wrong, xs), UserError);
  EXPECT_THROW(gradients(b, ys, {}, xs), UserError);
  EXPECT_THROW(gradients(b, convert(sum(y), DType::I64), xs), UserError);
}

TEST(GradientsOfCalls, ARepeatedLayerHasOneForwardAndOneBackward) {
  auto graphs = [](int layers) {
    return differentiate({{some({3}), some({3}, 5)}, [layers](Builder& b, std::span<const Value> in) {
                            const GraphId graph = layer(b);
                            Value x = in[0];
                            for (int i = 0; i < layers; ++i) x = call_one(b, graph, {x, in[1]});
                            return sum(x);
                          }})
        .module.graphs.size();
  };
  EXPECT_EQ(graphs(2), graphs(24));
  EXPECT_EQ(graphs(24), 3U);  // main, layer_forward, layer_backward
}

/// Value floor(x), gradient of its own: the incoming one times `factor` (x itself, so that it has a derivative too).
Value rounded(Builder& builder, Value x) {
  return composite(
      builder, "rounded", std::vector<Value>{x}, [](Builder&, const std::vector<Value>& in) { return std::vector<Value>{floor(in[0])}; },
      [](Builder&, const std::vector<Value>& in) { return std::vector<Value>{in[2] * in[0] * in[0]}; })[0];
}

TEST(GradientsOfCalls, ACompositeBringsItsOwnGradient) {
  const Program once{{f64({3}, {0.5, 1.5, -2})}, [](Builder& b, std::span<const Value> in) { return sum(rounded(b, in[0]) * 3); }};
  EXPECT_EQ(*differentiate(once).gradients[0], f64({3}, {0.75, 6.75, 12}));
  // Inside a layer that is called twice, with another use of x.
  const Program nested{{f64({3}, {0.5, 1.5, -2})}, [](Builder& b, std::span<const Value> in) {
                         const GraphId graph = make_graph(b, "holder", {row}, [](Builder& g, std::span<const Value> x) {
                           return std::vector<Value>{rounded(g, x[0]) + x[0]};
                         });
                         return sum(call_one(b, graph, {in[0]})) + sum(call_one(b, graph, {in[0] * 2}));
                       }};
  EXPECT_EQ(*differentiate(nested).gradients[0], f64({3}, {0.25 + 1 + 2 * 1 + 2, 2.25 + 1 + 2 * 9 + 2, 4 + 1 + 2 * 16 + 2}));
}

TEST(GradientsOfCalls, TheGradientOfAnOwnGradient) {
  // d/dx of (g * x * x) with g = 1 is 2x.
  Module module;
  const GraphId id = module.add_graph("main");
  Builder b(module, id);
  const Value x = b.input(row);
  const Value first = *gradients(b, sum(rounded(b, x)), std::vector<Value>{x})[0];
  b.output(*gradients(b, sum(first), std::vector<Value>{x})[0]);
  EXPECT_EQ(evaluate_graph(module, id, std::vector<Literal>{f64({3}, {0.5, 1.5, -2})})[0], f64({3}, {1, 3, -4}));
}

TEST(GradientsOfCalls, CompositesInside) {
  expect_gradients({{some({2, 3}), some({3}, 5)}, [](Builder& b, std::span<const Value> in) {
                      const GraphId graph = make_graph(b, "head", {f64_type({2, 3}), row}, [](Builder&, std::span<const Value> x) {
                        return std::vector<Value>{log_softmax(gelu(x[0] * x[1]), 1)};
                      });
                      return sum(call_one(b, graph, {in[0], in[1]}) * in[0]) + sum(softmax(in[0], 0) * in[0]);
                    }});
}

TEST(GradientsOfCalls, DropoutsGradientUsesTheSameMask) {
  Module module;
  const GraphId id = module.add_graph("main");
  Builder b(module, id);
  const Value x = b.input({DType::F32, {64, 64}, {}}), seed = b.input({DType::I64, {}, {}}), step = b.input({DType::I64, {}, {}});
  const TensorType scalar_type{DType::I64, {}, {}};
  const GraphId graph = make_graph(b, "dropping", {x.type(), scalar_type}, [](Builder&, std::span<const Value> in) {
    return std::vector<Value>{dropout(in[0], 0.5, in[1])};
  });
  const Value key = fold_in(seed, step);
  const Value first = call_one(b, graph, {x, fold_in(key, 0)}), second = call_one(b, graph, {x, fold_in(key, 1)}), third = dropout(x, 0.5, fold_in(key, 2));
  for (const Value& y : {first, second, third}) b.output(y);
  for (const Value& y : {first, second, third}) b.output(*gradients(b, sum(y), std::vector<Value>{x})[0]);
  auto run = [&](int64_t number) {
    return evaluate_graph(module, id, std::vector<Literal>{Literal::full(DType::F32, {64, 64}, 1), Literal::integer(DType::I64, 7), Literal::integer(DType::I64, number)});
  };
  std::vector<std::vector<Literal>> steps;
  for (int64_t number = 0; number < 3; ++number) steps.push_back(run(number));
  for (const auto& outputs : steps) {
    for (size_t y = 0; y < 3; ++y) EXPECT_EQ(outputs[y], outputs[y + 3]) << "x is one: dL/dx is y / x, bit for bit";
    EXPECT_FALSE(outputs[0] == outputs[1]) << "two keys, two masks";
    EXPECT_FALSE(outputs[0] == outputs[2]);
    EXPECT_FALSE(outputs[1] == outputs[2]);
    double kept = 0;
    for (int64_t i = 0; i < outputs[0].count(); ++i) kept += outputs[0].at(i) / 2;
    EXPECT_NEAR(kept / 4096, 0.5, 0.05);
  }
  EXPECT_FALSE(steps[0][0] == steps[1][0]);
  EXPECT_FALSE(steps[1][0] == steps[2][0]);
  EXPECT_EQ(run(1)[0], steps[1][0]);
}

}  // namespace gradients_calls_test
}  // namespace stepgraph::gradient_tests
