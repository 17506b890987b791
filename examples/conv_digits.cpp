// SPDX-License-Identifier: Apache-2.0
// A convolutional network with batch norm learns digits on two ranks: the statistics are those of the whole batch, whatever the mesh.
//
//   conv_digits [STEPS [DIGITS.CSV]]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "stepgraph/stepgraph.h"

using namespace stepgraph;

// Convolution, batch norm, relu: conv1.weight, bn1.weight, bn1.running_mean, ...
static Value unit(Scope s, const std::string& number, Value x, int64_t channels) {
  x = conv(s / ("conv" + number), x, channels, {.kernel = {3}, .padding = {1}, .bias = false});
  return relu(batch_norm(s / ("bn" + number), x));
}

static Value model(Scope s, Value x) {
  x = unit(s, "1", x, 8);
  x = max_pool(unit(s, "2", x, 16), {.size = {2, 2}});
  x = dropout(s, flatten(x, 1, -1), 0.2);  // the identity in evaluation
  return linear(s / "fc", x, 10);
}

int main(int argc, char** argv) try {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200;
  const Splits data = digits(argc > 2 ? argv[2] : "data/digits.csv");

  const Dim batch = Dim::symbol("batch");
  Optimizer optimizer;  // AdamW
  optimizer.rate = warmup_cosine(5e-3, 10, steps < 20 ? 20 : steps);
  optimizer.weight_decay = 0.01;
  optimizer.no_decay = {"*.bias", "bn*"};
  const Module step = train_step({{"image", DType::F32, {batch, 1, 8, 8}}, {"label", DType::I64, {batch}}},
                                 [](Scope s, Inputs in) -> Loss { return cross_entropy(model(s, in["image"]), in["label"]); }, optimizer);

  Trainer trainer(step, {.mesh = "data=2", .seed = 1});
  Loader loader(data.train, {.batch = 32, .seed = 1});
  for (int64_t i = 0; i < steps; ++i) {
    const StepResult result = trainer.step(loader.next()->arrays);
    if (i % 20 == 0 || i + 1 == steps)
      std::printf("step %4lld  loss %.4f  accuracy of the batch %.3f\n", static_cast<long long>(i), result.loss, result.metrics.at("accuracy"));
  }
  const EvalReport report = evaluate(trainer, data.test, 360);
  std::printf("test loss %.4f  accuracy %.4f\n", report.loss.value(), report.metrics.at("accuracy"));
} catch (const Error& error) {
  std::fprintf(stderr, "conv_digits: %s\n", error.what());
  return 2;
}
