// SPDX-License-Identifier: Apache-2.0
// What a user of the installed package writes first: a line is fitted on two ranks, and the loss falls.
#include "stepgraph/stepgraph.h"

#include <cstdio>
#include <vector>

using namespace stepgraph;

int main() try {
  const Dim batch = Dim::symbol("batch");
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Sgd;
  optimizer.rate = 0.1;
  const Module step = train_step({{"x", DType::F32, {batch, 1}}, {"y", DType::F32, {batch, 1}}},
                                 [](Scope s, Inputs in) -> Loss { return mse_loss(linear(s / "line", in["x"], 1), in["y"]); }, optimizer);
  Trainer trainer(step, {.mesh = "data=2", .seed = 1});
  const std::vector<double> x = {-1, 0, 1}, y = {-1, 1, 3};  // three rows on two ranks
  const NamedArrays rows = {{"x", Literal::from_doubles(DType::F32, {3, 1}, x)}, {"y", Literal::from_doubles(DType::F32, {3, 1}, y)}};
  double first = 0, last = 0;
  for (int i = 0; i < 50; ++i) {
    last = trainer.step(rows).loss;
    if (i == 0) first = last;
  }
  std::printf("stepgraph %s: loss %.4f, then %.4f\n", version_string, first, last);
  return last < 0.01 && last < first ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
