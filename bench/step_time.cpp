// SPDX-License-Identifier: Apache-2.0
// Milliseconds a training step takes on the reference interpreter: the quickstart's two models, on one and on two ranks.
#include <cstdlib>

#include "bench/measure.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/models/models.h"
#include "stepgraph/train/trainer.h"

namespace {

using namespace stepgraph;

struct Task {
  std::string name, model;
  ModelOptionValues options;
  int64_t batch, limit;  // rows; integers are below `limit`
};

NamedArrays batch_of(const ModelDefinition& model, const Task& task) {
  NamedArrays arrays;
  for (const InputSpec& input : model.inputs) {
    Sizes sizes;
    for (const Dim& dim : input.shape) sizes.push_back(dim.is_constant() ? dim.constant() : task.batch);
    Literal value(input.dtype, sizes);
    for (int64_t i = 0; i < value.count(); ++i) {
      if (is_floating(input.dtype)) value.set(i, static_cast<double>((i * 37 + 11) % 100) / 50 - 1);
      else value.set_integer(i, (i * 37 + 11) % task.limit);
    }
    arrays.emplace_back(input.name, std::move(value));
  }
  return arrays;
}

void measure(const Task& task, int steps) {
  const ModelDefinition model = define_model(task.model, task.options);
  const NamedArrays batch = batch_of(model, task);
  double one_rank = 0;
  for (const char* mesh : {"", "data=2"}) {
    Trainer trainer(train_step(model.inputs, model.function, {}, {.clip_norm = 1.0}, model.capture), {.mesh = mesh});
    trainer.step(batch);
    std::vector<double> samples;
    for (int i = 0; i < steps; ++i) samples.push_back(bench::milliseconds([&] { trainer.step(batch); }));
    const bench::Spread found = bench::spread(samples);
    bench::print_row("  " + task.name + (*mesh ? ", two ranks" : ", one rank"), found);
    if (!*mesh) one_rank = found.median;
    else std::printf("  %-42s %21.2f\n", "one rank / two ranks, medians", one_rank / found.median);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  bench::print_head("one training step");
  measure({"digits convnet, batch 32", "convnet", {}, 32, 10}, steps);
  measure({"gpt 2 x 64, context 64, batch 16", "gpt", {{"layers", "2"}, {"width", "64"}, {"context", "64"}}, 16, 256}, steps);
}
