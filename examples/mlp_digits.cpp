// SPDX-License-Identifier: Apache-2.0
// A multi-layer perceptron learns 8x8 pictures of digits on two ranks.
//
//   mlp_digits [STEPS [DIGITS.CSV]]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "stepgraph/stepgraph.h"

using namespace stepgraph;

// A model is a function over values. The scope gives names: layers.0.weight, layers.0.bias, ...
static Value model(Scope s, Value images) {
  Value x = flatten(images, 1, -1);  // [batch, 1, 8, 8] -> [batch, 64]
  x = relu(linear(s / "layers" / int64_t{0}, x, 64));
  return linear(s / "layers" / 1, x, 10);
}

int main(int argc, char** argv) try {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200;
  const Splits data = digits(argc > 2 ? argv[2] : "data/digits.csv");

  // The whole training iteration is one program: forward, loss, backward, optimizer. Its batch size is a symbol.
  const Dim batch = Dim::symbol("batch");
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Sgd;
  optimizer.rate = 0.1;
  optimizer.momentum = 0.9;
  const Module step = train_step({{"image", DType::F32, {batch, 1, 8, 8}}, {"label", DType::I64, {batch}}},
                                 [](Scope s, Inputs in) -> Loss { return cross_entropy(model(s, in["image"]), in["label"]); }, optimizer);

  Trainer trainer(step, {.mesh = "data=2", .seed = 1});
  Loader loader(data.train, {.batch = 32, .seed = 1});
  for (int64_t i = 0; i < steps; ++i) {
    const StepResult result = trainer.step(loader.next()->arrays);
    if (i % 20 == 0 || i + 1 == steps) std::printf("step %4lld  loss %.4f\n", static_cast<long long>(i), result.loss);
  }
  const EvalReport report = evaluate(trainer, data.test, 360);
  std::printf("test loss %.4f  accuracy %.4f\n", report.loss.value(), report.metrics.at("accuracy"));
} catch (const Error& error) {
  std::fprintf(stderr, "mlp_digits: %s\n", error.what());
  return 2;
}
