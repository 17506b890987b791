// SPDX-License-Identifier: Apache-2.0
// A loss of one's own, written with plain functions over values: a weighted Huber loss with a penalty and a metric. Its gradient comes by itself.
//
//   custom_loss [STEPS]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "stepgraph/stepgraph.h"

using namespace stepgraph;

// Quadratic near zero, linear far away: outliers pull with bounded force.
static Value huber(Value error, double delta) {
  const Value size = abs(error);
  return where(less(size, delta), error * error * 0.5, (size - 0.5 * delta) * delta);
}

static Loss fit(Scope s, Inputs in) {
  const Value line = linear(s / "line", in["x"], 1, {.weight_start = initialize::zeros(), .bias_start = initialize::zeros()});
  const Value error = squeeze(line, {1}) - in["y"];
  // A loss is a sum over a sum: rows of weight 0 count for nothing, and any split of the batch gives the same gradient.
  const Value weight = in["weight"];
  Loss loss(sum(huber(error, 1.0) * weight), sum(weight));
  return loss.metric("mean_absolute_error", sum(abs(error) * weight), sum(weight)).output("error", error);
}

// y = 2 x0 - 3 x1 + 0.5; every tenth row is an outlier, every seventh has weight 0 and nonsense in it.
static NamedArrays some_rows(int64_t rows) {
  std::vector<double> x, y, weight;
  for (int64_t i = 0; i < rows; ++i) {
    const double a = std::sin(1.7 * static_cast<double>(i)), b = std::cos(2.3 * static_cast<double>(i));
    x.insert(x.end(), {a, b});
    y.push_back(i % 7 == 0 ? 1e6 : 2 * a - 3 * b + 0.5 + (i % 10 == 5 ? 20 : 0));
    weight.push_back(i % 7 == 0 ? 0 : 1);
  }
  return {{"weight", Literal::from_doubles(DType::F32, {rows}, weight)},
          {"x", Literal::from_doubles(DType::F32, {rows, 2}, x)},
          {"y", Literal::from_doubles(DType::F32, {rows}, y)}};
}

int main(int argc, char** argv) try {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200;
  const Dim batch = Dim::symbol("batch");
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Adam;
  optimizer.rate = 0.05;
  const Module step = train_step({{"x", DType::F32, {batch, 2}}, {"y", DType::F32, {batch}}, {"weight", DType::F32, {batch}}}, fit, optimizer);

  Trainer trainer(step, {.mesh = "data=2"});
  const NamedArrays rows = some_rows(101);  // an odd number: two ranks take 51 and 50
  for (int64_t i = 0; i < steps; ++i) {
    const StepResult result = trainer.step(rows);
    if (i % 50 == 0 || i + 1 == steps)
      std::printf("step %4lld  loss %.4f  mean absolute error %.4f\n", static_cast<long long>(i), result.loss, result.metrics.at("mean_absolute_error"));
  }
  for (const auto& [name, value] : trainer.weights()) std::printf("%s = %s\n", name.c_str(), value.text().c_str());
} catch (const Error& error) {
  std::fprintf(stderr, "custom_loss: %s\n", error.what());
  return 2;
}
