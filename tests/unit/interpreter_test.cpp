// SPDX-License-Identifier: Apache-2.0
// The walk of the oracle: symbols from sizes, calls, loops in both directions, MapTensors in chunks, random numbers by place, bytes that are alive.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ir/solve_symbols.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/reference/interpreter.h"
#include "tests/support/error_of.h"

namespace stepgraph {
namespace interpreter_test {

constexpr DType F64 = DType::F64;

Literal vector_of(const std::vector<double>& values, DType dtype = F64) { return Literal::from_doubles(dtype, {static_cast<int64_t>(values.size())}, values); }
Literal matrix(int64_t rows, int64_t columns, const std::vector<double>& values) { return Literal::from_doubles(F64, {rows, columns}, values); }
// ---- symbols ----

class Symbols : public ::testing::Test {
 protected:
  Symbols() : batch(module.symbols.declare({"batch", SymbolKind::Size, 1, 8, 2, {}})), graph(module.add_graph("main")) {}
  /// Sizes that the interpreter reports for given inputs.
  SymbolValues solve(const std::vector<Shape>& types, const std::vector<Sizes>& sizes, const SymbolValues& known = {}) {
    const GraphId id = module.add_graph("g");
    Builder builder(module, id);
    for (size_t i = 0; i < types.size(); ++i) builder.input({DType::F32, types[i], {}}, {RoleKind::Batch, "x" + std::to_string(i)});
    std::vector<Literal> inputs;
    for (const Sizes& s : sizes) inputs.emplace_back(DType::F32, s);
    return solve_symbols(module, module.graph(id), inputs, known);
  }
  Module module;
  Dim batch;
  GraphId graph;
};

TEST_F(Symbols, AreSolvedFromSizes) {
  EXPECT_EQ(solve({{batch, 3}}, {{4, 3}}), (SymbolValues{{"batch", 4}}));
  EXPECT_EQ(solve({{batch * 3 + 1}}, {{13}}), (SymbolValues{{"batch", 4}}));
  // The second input can only be checked when the first has told the value, whatever their order.
  EXPECT_EQ(solve({{floordiv(batch, 3)}, {batch}}, {{2}, {6}}), (SymbolValues{{"batch", 6}}));
  const Dim sequence = module.symbols.declare({"sequence", SymbolKind::Size, 0, 100, 1, {}});
  EXPECT_EQ(solve({{batch * sequence}, {batch}}, {{35 * 2}, {2}}), (SymbolValues{{"batch", 2}, {"sequence", 35}}));
  EXPECT_EQ(solve({{max(0, min(batch, 3))}}, {{3}}, {{"batch", 4}}), (SymbolValues{{"batch", 4}}));
}

TEST_F(Symbols, ErrorsNameTheInput) {
  EXPECT_EQ(testing::error_of([&] { solve({{batch, 3}}, {{4, 5}}); }), "g: input 'x0': dim 1 is 5, wanted 3");
  EXPECT_EQ(testing::error_of([&] { solve({{batch, 3}}, {{4}}); }), "g: input 'x0': found shape [4], wanted f32[batch, 3]");
  EXPECT_EQ(testing::error_of([&] { solve({{batch}, {batch}}, {{4}, {6}}); }), "g: input 'x1': dim 0 is 6, wanted batch, which is 4");
  EXPECT_EQ(testing::error_of([&] { solve({{batch}}, {{10}}); }), "g: input 'x0': dim 0 is 10, wanted batch, so size 'batch' is 10, wanted 1 to 8");
  EXPECT_EQ(testing::error_of([&] { solve({{batch}}, {{3}}); }), "g: input 'x0': dim 0 is 3, wanted batch, so size 'batch' is 3, wanted a multiple of 2");
  EXPECT_EQ(testing::error_of([&] { solve({{batch * 3}}, {{7}}); }), "g: input 'x0': dim 0 is 7, wanted 3*batch with an integer 'batch'");
  EXPECT_EQ(testing::error_of([&] { solve({{floordiv(batch, 3)}}, {{2}}); }),
            "g: input 'x0': dim 0 is 2, wanted floordiv(batch, 3); this does not tell the value of 'batch', which must be given");
  EXPECT_EQ(testing::error_of([&] { solve({{batch}}, {}); }), "g: found 0 inputs, wanted 1");
  EXPECT_EQ(testing::error_of([&] { solve({}, {}, {{"batch", 9}}); }), "g: size 'batch' is 9, wanted 1 to 8");
}

TEST_F(Symbols, OneInterpreterTakesAnySize) {
  Builder builder(module, graph);
  const Value x = builder.input({F64, {batch}, {}});
  builder.output(sum(x) / size_value(builder, F64, batch));
  Interpreter interpreter(module);
  for (const int64_t size : {2, 8, 4, 4, 2}) {
    EXPECT_EQ(interpreter.run(graph, {Literal::full(F64, {size}, 3)}).at(0).at(0), 3.0);
    EXPECT_EQ(interpreter.symbols().at("batch"), size);
  }
  EXPECT_THROW(interpreter.run(graph, {Literal(DType::F32, {2})}), UserError);
}

// ---- calls and loops ----

/// Graph "layer": x -> x * x + 1.
GraphId square_plus_one(Module& module) {
  const GraphId id = module.add_graph("layer");
  Builder builder(module, id);
  const Value x = builder.input({F64, {2}, {}});
  builder.output(x * x + 1.0);
  return id;
}

TEST(Interpreter, Calls) {
  Module module;
  const GraphId layer = square_plus_one(module), main = module.add_graph("main");
  Builder builder(module, main);
  const Value x = builder.input({F64, {2}, {}});
  const Value once = call(builder, layer, std::vector<Value>{x}).at(0);
  builder.output(call(builder, layer, std::vector<Value>{once}).at(0));
  builder.output(x);
  const std::vector<Literal> got = evaluate_graph(module, main, std::vector<Literal>{vector_of({1, 2})});
  EXPECT_EQ(got.at(0).to_doubles(), (std::vector<double>{5, 26}));
  EXPECT_EQ(got.at(1).to_doubles(), (std::vector<double>{1, 2}));
}

/// state' = state * factor + slice; stacks (state' + iteration). Carried: state; scanned: slices; invariant: factor.
struct LoopModule {
  explicit LoopModule(bool reverse, const Dim& trips) : body(module.add_graph("body")), main(module.add_graph("main")) {
    module.symbols.declare({"i", SymbolKind::Iteration, 0, INT64_MAX, 1, {}});
    Builder inner(module, body);
    const Value state = inner.input({F64, {2}, {}}), slice = inner.input({F64, {2}, {}}), factor = inner.input({F64, {}, {}});
    const Value next = state * factor + slice;
    inner.output(next);
    inner.output(next + size_value(inner, F64, Dim::symbol("i")));
    Builder outer(module, main);
    const Value initial = outer.input({F64, {2}, {}}), slices = outer.input({F64, {trips, 2}, {}}), f = outer.input({F64, {}, {}});
    Loop loop;
    loop.body = body, loop.trip_count = trips, loop.symbol = "i", loop.carried = 1, loop.scanned = 1, loop.reverse = reverse;
    for (const Value& result : outer.emit(loop, {initial, slices, f})) outer.output(result);
  }
  Module module;
  GraphId body, main;
};

TEST(Interpreter, LoopsRunInBothDirections) {
  const std::vector<Literal> inputs = {vector_of({1, 0}), matrix(3, 2, {1, 10, 2, 20, 3, 30}), Literal::scalar(F64, 2)};
  LoopModule forward(false, 3);
  std::vector<Literal> got = evaluate_graph(forward.module, forward.main, inputs);
  EXPECT_EQ(got.at(0).to_doubles(), (std::vector<double>{19, 110}));
  EXPECT_EQ(got.at(1).to_doubles(), (std::vector<double>{3, 10, 9, 41, 21, 112}));
  LoopModule backward(true, 3);
  got = evaluate_graph(backward.module, backward.main, inputs);
  EXPECT_EQ(got.at(0).to_doubles(), (std::vector<double>{25, 170}));
  EXPECT_EQ(got.at(1).to_doubles(), (std::vector<double>{25, 170, 13, 81, 7, 32}));
}

TEST(Interpreter, ALoopWithoutTripsHandsItsStateOn) {
  LoopModule none(false, 0);
  const std::vector<Literal> got =
      evaluate_graph(none.module, none.main, std::vector<Literal>{vector_of({1, 5}), Literal(F64, {0, 2}), Literal::scalar(F64, 2)});
  EXPECT_EQ(got.at(0).to_doubles(), (std::vector<double>{1, 5}));
  EXPECT_EQ(got.at(1).sizes(), (Sizes{0, 2}));
}

TEST(Interpreter, LoopErrorsAtBuild) {
  LoopModule good(false, 3);
  Builder outer(good.module, good.module.add_graph("other"));
  const Value state = outer.input({F64, {2}, {}}), slices = outer.input({F64, {4, 2}, {}}), factor = outer.input({F64, {}, {}});
  Loop loop;
  loop.body = good.body, loop.trip_count = 3, loop.symbol = "i", loop.carried = 1, loop.scanned = 1;
  EXPECT_EQ(testing::error_of([&] { outer.emit(loop, {state, slices, factor}); }), "loop: scanned input 1 is f64[4, 2], wanted 3 slices along dim 0");
  loop.trip_count = 4;
  EXPECT_EQ(testing::error_of([&] { outer.emit(loop, {factor, slices, factor}); }), "loop: input 0 of 'body' is f64[2], found f64[]");
  EXPECT_EQ(testing::error_of([&] { outer.emit(loop, {state, slices}); }), "loop: 'body' takes 3 inputs, found 2");
  loop.trip_count = -1;
  EXPECT_EQ(testing::error_of([&] { outer.emit(loop, {state, slices, factor}); }), "loop: a trip count of -1");
  EXPECT_EQ(testing::error_of([&] { outer.emit(Call{{77}}, {state}); }), "call: graph 77 does not exist, the module has 3");
  EXPECT_EQ(testing::error_of([&] { outer.emit(Call{good.body}, {state, state, state}); }), "call: input 2 of 'body' is f64[], found f64[2]");
}

// ---- map_tensors ----

TEST(Interpreter, MapTensorsEqualsTheBodyOnEachElement) {
  Module module;
  const GraphId body = module.add_graph("update"), main = module.add_graph("main");
  {
    Builder builder(module, body);
    const Value w = builder.input({DType::F32, {}, {}}), g = builder.input({DType::F32, {}, {}}), rate = builder.input({DType::F32, {}, {}});
    const Value step = g * (rate * 2.0) + scalar(builder, DType::F32, 0.5);
    builder.output(where(greater(g, 0.0), w - step, w));
    builder.output(step);
    builder.output(rate * 3.0);  // the same for every element
  }
  const std::vector<Sizes> shapes = {{}, {3}, {0, 4}, {130, 127}};  // the last one takes several chunks
  Builder builder(module, main);
  std::vector<Value> operands;
  for (int table = 0; table < 2; ++table)
    for (const Sizes& sizes : shapes) operands.push_back(builder.input({DType::F32, Shape(sizes.begin(), sizes.end()), {}}));
  operands.push_back(builder.input({DType::F32, {}, {}}));
  for (const Value& result : builder.emit(MapTensors{body, static_cast<int64_t>(shapes.size()), 2}, operands)) builder.output(result);

  std::vector<Literal> inputs;
  for (int table = 0; table < 2; ++table) {
    for (const Sizes& sizes : shapes) {
      inputs.emplace_back(DType::F32, sizes);
      for (int64_t i = 0; i < inputs.back().count(); ++i) inputs.back().set(i, std::sin(static_cast<double>(i * (table + 1))));
    }
  }
  inputs.push_back(Literal::scalar(DType::F32, 0.25));
  const std::vector<Literal> got = evaluate_graph(module, main, inputs);
  ASSERT_EQ(got.size(), 12U);
  for (size_t j = 0; j < shapes.size(); ++j) {
    EXPECT_EQ(got[j].sizes(), shapes[j]);
    for (int64_t i = 0; i < got[j].count(); ++i) {
      const auto w = static_cast<float>(inputs[j].at(i)), g = static_cast<float>(inputs[4 + j].at(i));
      const float step = g * 0.5F + 0.5F;
      ASSERT_EQ(got[j].at(i), g > 0 ? w - step : w);
      ASSERT_EQ(got[4 + j].at(i), step);
      ASSERT_EQ(got[8 + j].at(i), 0.75);
    }
  }
  EXPECT_EQ(testing::error_of([&] { builder.emit(MapTensors{body, 5, 2}, operands); }), "map_tensors: 2 tables of 5 tensors, found 9 inputs");
  std::swap(operands[0], operands[1]);
  EXPECT_EQ(testing::error_of([&] { builder.emit(MapTensors{body, 4, 2}, operands); }), "map_tensors: tensor 0 is f32[3] in table 0 and f32[] in table 1");
}

// ---- random numbers ----

struct RandomModule {
  RandomModule() : layer(module.add_graph("noise")) {
    Builder builder(module, layer);
    builder.output(random_uniform(builder.input({DType::I64, {}, {}}), F64, {64}));
  }
  /// The numbers of `calls` calls of the layer.
  std::vector<Literal> run(int64_t seed, int64_t step, int calls) {
    const GraphId main = module.add_graph("main");
    Builder builder(module, main);
    const Value key = step_key(builder);
    for (int i = 0; i < calls; ++i) builder.output(builder.emit(Call{layer}, {fold_in(key, 10 + i)}).at(0));
    return evaluate_graph(module, main, std::vector<Literal>{Literal::integer(DType::I64, seed), Literal::integer(DType::I64, step)});
  }
  static Value step_key(Builder& builder) {
    const Value seed = builder.input({DType::I64, {}, {}}), step = builder.input({DType::I64, {}, {}});
    return fold_in(seed, step);
  }
  Module module;
  GraphId layer;
};

TEST(Interpreter, RandomNumbersDependOnSeedStepAndDrawOnly) {
  RandomModule noise;
  const std::vector<Literal> first = noise.run(1, 0, 3), again = noise.run(1, 0, 2), other_seed = noise.run(2, 0, 1), other_step = noise.run(1, 1, 1);
  EXPECT_TRUE(first[0] == again[0] && first[1] == again[1]);
  EXPECT_FALSE(first[0] == first[1] || first[1] == first[2] || first[0] == other_seed[0] || first[0] == other_step[0]);
}

TEST(Interpreter, AnInlinedCallDrawsTheSameNumbers) {
  RandomModule noise;
  const Literal called = noise.run(1, 2, 1).at(0);
  const GraphId main = noise.module.add_graph("inlined");
  Builder builder(noise.module, main);
  const Value key = fold_in(RandomModule::step_key(builder), 10);
  builder.output(builder.inline_graph(noise.module.graph(noise.layer), {&key, 1}).at(0));
  const Literal inlined = evaluate_graph(noise.module, main, std::vector<Literal>{Literal::integer(DType::I64, 1), Literal::integer(DType::I64, 2)}).at(0);
  EXPECT_TRUE(called == inlined);
}

TEST(Interpreter, AnIterationDrawsByWhatIsFoldedIntoItsKey) {
  for (const bool fresh : {true, false}) {
    RandomModule noise;
    Loop loop;
    loop.trip_count = 2, loop.symbol = iteration_symbol(noise.module), loop.body = noise.module.add_graph("body");
    {
      Builder body(noise.module, loop.body);
      const Value key = body.input({DType::I64, {}, {}});
      const Value own = fresh ? fold_in(key, size_value(body, DType::I64, Dim::symbol(loop.symbol))) : key;
      body.output(body.emit(Call{noise.layer}, {own}).at(0));
    }
    const GraphId main = noise.module.add_graph("main");
    Builder builder(noise.module, main);
    builder.output(builder.emit(loop, {RandomModule::step_key(builder)}).at(0));
    const Literal got = evaluate_graph(noise.module, main, std::vector<Literal>{Literal::integer(DType::I64, 1), Literal::integer(DType::I64, 2)}).at(0);
    EXPECT_TRUE((got.at(0) == got.at(64)) == !fresh);
  }
}

// ---- bytes, hooks, errors ----

TEST(Interpreter, CountsBytesThatAreAlive) {
  Module module;
  const GraphId main = module.add_graph("main");
  Builder builder(module, main);
  const Value x = builder.input({DType::F32, {1000}, {}});
  const Value a = exp(x);  // x, a
  const Value b = reshape(a, {10, 100});
  const Value c = exp(b);  // a and b share storage; x is dead
  builder.output(exp(c));  // c and the result
  Interpreter interpreter(module);
  interpreter.run(main, {Literal(DType::F32, {1000})});
  EXPECT_EQ(interpreter.peak_bytes(), 8000);
}

TEST(Interpreter, AChainOfCallsHoldsNoMoreThanTheInlinedChain) {
  Module module;
  const GraphId layer = module.add_graph("layer");
  {
    Builder builder(module, layer);
    const Value x = builder.input({F64, {1000}, {}});
    builder.output(exp(exp(x)));
  }
  const GraphId main = module.add_graph("main");
  Builder builder(module, main);
  Value x = builder.input({F64, {1000}, {}});
  for (int i = 0; i < 5; ++i) x = call(builder, layer, std::vector<Value>{x}).at(0);
  builder.output(x);
  Interpreter interpreter(module);
  interpreter.run(main, {Literal::full(F64, {1000}, -1e3)});
  EXPECT_EQ(interpreter.peak_bytes(), 16000);
}

TEST(Interpreter, FindsTheFirstValueThatIsNotFinite) {
  Module module;
  const GraphId main = module.add_graph("main");
  Builder builder(module, main);
  const Value x = builder.input({DType::F32, {3}, {}});
  // The -inf of a mask is meant.
  const Value masked = where(greater(x, 0.0), x, full(builder, DType::F32, {3}, -std::numeric_limits<double>::infinity()));
  builder.set_scope("h.0.attn");
  builder.set_place({"gpt.cpp", 41});
  const Value bad = builder.emit_one(Unary{UnaryKind::Log}, {x});
  builder.output(masked + exp(bad));
  const std::vector<Literal> good = {vector_of({1, 2, 3}, DType::F32)}, wrong = {vector_of({1, -2, 3}, DType::F32)};
  Interpreter interpreter(module, {stop_at_first_non_finite()});
  EXPECT_NO_THROW(interpreter.run(main, good));
  EXPECT_EQ(testing::error_of([&] { interpreter.run(main, wrong); }),
            "first value that is not finite: log in 'h.0.attn' gives nan at element 1 of f32[3], from finite inputs (gpt.cpp:41)");
  EXPECT_NO_THROW(interpreter.run(main, good));
}

TEST(Interpreter, ErrorsOfARunCarryThePlace) {
  Module module;
  const GraphId main = module.add_graph("main");
  Builder builder(module, main);
  const Value table = builder.input({F64, {10, 2}, {}}), index = builder.input({DType::I64, {3}, {}});
  builder.set_place({"model.cpp", 7});
  builder.output(builder.emit_one(IndexSelect{0}, {table, index}));
  const auto run = [&](int64_t bad) {
    const std::vector<int64_t> indices = {0, 9, bad};
    evaluate_graph(module, main, std::vector<Literal>{Literal(F64, {10, 2}), Literal::from_integers(DType::I64, {3}, indices)});
  };
  EXPECT_EQ(testing::error_of([&] { run(10); }), "index_select: index 10 (element 2 of the indices) is outside of a dim of size 10 (model.cpp:7)");
  EXPECT_EQ(testing::error_of([&] { run(-1); }), "index_select: index -1 (element 2 of the indices) is outside of a dim of size 10 (model.cpp:7)");
  EXPECT_EQ(testing::error_of([&] { run(1); }), "no error");
  EXPECT_NE(testing::error_of([&] { Interpreter(module).run("step", {}); }), "no error");
}

}  // namespace interpreter_test
}  // namespace stepgraph
