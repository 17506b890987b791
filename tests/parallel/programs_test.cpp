// SPDX-License-Identifier: Apache-2.0
// Small programs with gradients on one to four ranks, for batches that divide and that do not: layers, control flow, random numbers.
#include <gtest/gtest.h>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/linear.h"
#include "stepgraph/compile/ops/composite/losses.h"
#include "stepgraph/compile/ops/composite/normalization.h"
#include "stepgraph/compile/ops/functions.h"
#include "tests/parallel/mesh_check.h"

namespace stepgraph {
namespace programs_test {

void output_gradients(Builder& builder, Value loss, const std::vector<Value>& xs, const std::string& suffix = {}) {
  const auto found = gradients(builder, loss, xs);
  for (size_t i = 0; i < xs.size(); ++i)
    if (found[i]) user_output(*found[i], "gradient" + std::to_string(i) + suffix);
}

struct Precision {
  DType dtype;
  double tolerance;
};
class Programs : public ::testing::TestWithParam<int> {
 protected:
  Precision precision() const { return GetParam() == 0 ? Precision{DType::F64, 1e-12} : Precision{DType::F32, 1e-6}; }
};

TEST_P(Programs, NormalisedExponentialsAndMoments) {
  const auto [dtype, tolerance] = precision();
  for (int64_t rows = 1; rows <= 9; ++rows) {
    const Module module = module_of([&](Builder& b) {
      const Value x = batch_input(b, "x", dtype, {rows, 5});
      const Value w = parameter_input(b, "w", dtype, {5});
      for (int64_t dim : {0, 1}) {
        const Value y = softmax(x * w, dim), z = log_softmax(x * w, dim);
        const MeanVariance m = moments(x * w, {dim});
        const std::string over = std::to_string(dim);
        user_output(y, "softmax" + over), user_output(z, "log_softmax" + over), user_output(m.mean, "mean" + over);
        user_output(m.variance, "variance" + over);
        output_gradients(b, sum(y * x) + sum(z * z) + sum(m.mean * m.mean) + sum(m.variance * m.variance), {x, w}, over);
      }
      const MeanVariance all = moments(x, {0, 1});
      user_output(all.variance, "variance of all");
    });
    const std::vector<Literal> inputs = {numbers(dtype, {rows, 5}), numbers(dtype, {5}, 40)};
    for (const char* layout : {"{data}, {}", "{}, {data}"})
      expect_ranks_agree(module, inputs, tolerance * 10, std::to_string(rows) + " rows " + layout, laid("x", layout));
  }
}

TEST_P(Programs, PerceptronWithGradients) {
  const auto [dtype, tolerance] = precision();
  for (int64_t rows = 0; rows <= 9; ++rows) {
    const Module module = module_of([&, dtype = dtype](Builder& b) {
      const Value x = batch_input(b, "x", dtype, {rows, 4}), target = batch_input(b, "target", DType::I64, {rows});
      const Value w1 = parameter_input(b, "w1", dtype, {6, 4}), b1 = parameter_input(b, "b1", dtype, {6});
      const Value w2 = parameter_input(b, "w2", dtype, {3, 6}), b2 = parameter_input(b, "b2", dtype, {3});
      const Value logits = linear(gelu(linear(x, w1, b1)), w2, b2);
      const LossSum loss = cross_entropy_sum(logits, target);
      user_output(loss.numerator, "numerator"), user_output(loss.denominator, "denominator"), user_output(logits, "logits");
      output_gradients(b, loss.numerator, {x, w1, b1, w2, b2});
    });
    const std::vector<Literal> inputs = {numbers(dtype, {rows, 4}), indices({rows}, 3),          numbers(dtype, {6, 4}, 100),
                                         numbers(dtype, {6}, 200),  numbers(dtype, {3, 6}, 300), numbers(dtype, {3}, 400)};
    expect_ranks_agree(module, inputs, tolerance * 2, std::to_string(rows) + " rows");
  }
}

TEST_P(Programs, BatchAndLayerNormSeeTheWholeBatch) {
  const auto [dtype, tolerance] = precision();
  for (int64_t rows = 1; rows <= 6; ++rows) {
    const Module module = module_of([&, dtype = dtype](Builder& b) {
      const Value x = batch_input(b, "x", dtype, {rows, 3, 4});
      const Value w = parameter_input(b, "w", dtype, {3}), c = parameter_input(b, "c", dtype, {3});
      const Value v = parameter_input(b, "v", dtype, {4}), d = parameter_input(b, "d", dtype, {4});
      const BatchNorm n = batch_norm_training(x, w, c);
      const Value y = layer_norm(n.result, 1, v, d);
      user_output(n.mean, "mean"), user_output(n.variance, "variance"), user_output(y, "y");
      output_gradients(b, sum(y * y * x), {x, w, c, v, d});
    });
    const std::vector<Literal> inputs = {numbers(dtype, {rows, 3, 4}), numbers(dtype, {3}, 50), numbers(dtype, {3}, 60), numbers(dtype, {4}, 70),
                                         numbers(dtype, {4}, 80)};
    expect_ranks_agree(module, inputs, tolerance * 20, std::to_string(rows) + " rows");
  }
}

TEST_P(Programs, LayerCalledManyTimesIsOneGraph) {
  const auto [dtype, tolerance] = precision();
  const auto build = [&, dtype = dtype](int64_t rows) {
    return module_of([&](Builder& b) {
      const GraphId layer = b.module().add_graph("layer");
      {
        Builder inner(b.module(), layer);
        const Value x = inner.input({dtype, {rows, 4}, {}}), w = inner.input({dtype, {4, 4}, {}});
        inner.output(x + tanh(matmul(x, w)));
      }
      Value x = batch_input(b, "x", dtype, {rows, 4});
      std::vector<Value> weights;
      for (int i = 0; i < 5; ++i) weights.push_back(parameter_input(b, "w" + std::to_string(i), dtype, {4, 4}));
      Value y = x;
      for (const Value& w : weights) {
        const Value inputs[] = {y, w};
        y = call(b, layer, inputs)[0];
      }
      user_output(y, "y");
      std::vector<Value> xs = weights;
      xs.push_back(x);
      output_gradients(b, sum(y * y), xs);
    });
  };
  for (int64_t rows : {0, 1, 4, 5, 8}) {
    std::vector<Literal> inputs = {numbers(dtype, {rows, 4})};
    for (int i = 0; i < 5; ++i) inputs.push_back(numbers(dtype, {4, 4}, 100 * i));
    expect_ranks_agree(build(rows), inputs, tolerance * 10, std::to_string(rows) + " rows");
  }
  const Module logical = build(5);
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  const Module local = compile(logical, options);
  EXPECT_EQ(local.graphs.size(), prune_graphs(logical).graphs.size());
}

/// Sums of gradients over the slices of a batch, carried through a Loop.
Module accumulation(DType dtype, int64_t slices, int64_t rows) {
  return module_of([&](Builder& b) {
    b.module().symbols.declare({.name = "slice", .kind = SymbolKind::Iteration, .minimum = 0, .maximum = slices - 1, .buckets = {}});
    const GraphId body = b.module().add_graph("body");
    {
      Builder inner(b.module(), body);
      const Value total = inner.input({dtype, {4, 2}, {}}), count = inner.input({dtype, {}, {}}), last = inner.input({dtype, {2}, {}});
      const Value x = inner.input({dtype, {rows, 4}, {}}), w = inner.input({dtype, {4, 2}, {}});
      const Value y = tanh(matmul(x, w) + last);
      const Value wanted[] = {w};
      const auto gradient = gradients(inner, sum(y * y), wanted);
      inner.output(total + *gradient[0]);
      inner.output(count + sum(y));
      inner.output(last * 0.5 + sum(y, {0}) * 0.25);
      inner.output(y);
      inner.output(sum(y, {0}));
    }
    const Value x = b.input({dtype, {slices, rows, 4}, std::nullopt}, {RoleKind::Batch, "x", 1});
    const Value w = parameter_input(b, "w", dtype, {4, 2});
    Loop loop;
    loop.body = body;
    loop.trip_count = slices;
    loop.symbol = "slice";
    loop.carried = 3;
    loop.scanned = 1;
    const std::vector<Value> results = b.emit(loop, {full(b, dtype, {4, 2}, 0), scalar(b, dtype, 1), full(b, dtype, {2}, 0.5), x, w});
    for (size_t i = 0; i < results.size(); ++i) user_output(results[i], "r" + std::to_string(i));
  });
}

TEST_P(Programs, LoopOverMicroBatches) {
  const auto [dtype, tolerance] = precision();
  for (int64_t slices : {1, 3})
    for (int64_t rows = 0; rows <= 5; ++rows)
      expect_ranks_agree(accumulation(dtype, slices, rows), {numbers(dtype, {slices, rows, 4}), numbers(dtype, {4, 2}, 33)}, tolerance * 10,
                         std::to_string(slices) + " x " + std::to_string(rows));
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  const Module local = compile(accumulation(dtype, 3, 4), options);
  // The gradient is summed over the slices before it is reduced over the ranks: inside only what the next slice reads is reduced.
  for (const Node& node : local.graph(local.entry("main")).nodes)
    if (const auto* loop = std::get_if<Loop>(&node.op)) {
      EXPECT_EQ(count_nodes<AllReduce>(local, loop->body), 1);
    }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Programs, ::testing::Values(0, 1), [](const auto& info) { return info.param == 0 ? "f64" : "f32"; });

TEST(RandomNumbers, DoNotDependOnTheMesh) {
  for (int64_t rows = 0; rows <= 9; ++rows) {
    const Module module = module_of([&](Builder& b) {
      const Value x = batch_input(b, "x", DType::F32, {rows, 6});
      const Value seed = b.input({DType::I64, {}, {}}, {RoleKind::Seed, "seed"}), step = b.input({DType::I64, {}, {}}, {RoleKind::Step, "step"});
      const Value key = fold_in(seed, step);
      const Value uniform = random_uniform(key, DType::F32, {rows, 6});
      user_output(uniform + x, "uniform");
      user_output(random_normal(key, DType::F32, {rows, 6}) * x, "normal");
      const Value kept = dropout(x, 0.4, fold_in(key, 1));
      user_output(kept, "dropout");
      output_gradients(b, sum(kept * kept), {x});
    });
    const std::vector<Literal> inputs = {numbers(DType::F32, {rows, 6}), Literal::integer(DType::I64, 7), Literal::integer(DType::I64, 3)};
    for (const char* layout : {"{data}, {}", "{}, {data}"}) expect_ranks_agree(module, inputs, 0, std::to_string(rows) + " rows " + layout, laid("x", layout));
  }
}

}  // namespace programs_test
}  // namespace stepgraph
