// SPDX-License-Identifier: Apache-2.0
// A byte-level gpt from the zoo learns a text and writes some. Accumulation over two micro-batches, clipping, a rate that warms up and falls.
//
//   gpt_text [STEPS [TEXT]]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "stepgraph/stepgraph.h"

using namespace stepgraph;

// The most likely next byte, again and again. The model reads a window of fixed size, so the text is moved to its end.
static std::string write(Trainer& trainer, std::string text, int64_t context, int64_t count) {
  for (int64_t n = 0; n < count; ++n) {
    std::vector<int64_t> window;
    for (int64_t i = 0; i < context; ++i) {
      const int64_t at = static_cast<int64_t>(text.size()) - context + i;
      window.push_back(at < 0 ? ' ' : static_cast<unsigned char>(text[static_cast<size_t>(at)]));
    }
    const Literal tokens = Literal::from_integers(DType::I32, {1, context}, window);
    const Literal logits = trainer.eval_batch({{"tokens", tokens}, {"targets", tokens}}).outputs.at("logits");
    int64_t best = 0;
    for (int64_t v = 1; v < 256; ++v)
      if (logits.at((context - 1) * 256 + v) > logits.at((context - 1) * 256 + best)) best = v;
    text += static_cast<char>(best);
  }
  return text;
}

int main(int argc, char** argv) try {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 100, context = 32;
  TextOptions text;
  text.context = context;
  const Splits data = text_windows(argc > 2 ? argv[2] : "data/austen.txt", text);

  GptOptions options;
  options.context = context;
  options.layers = 2;
  options.width = 32;
  options.heads = 4;
  const Dim batch = Dim::symbol("batch");
  Optimizer optimizer;  // AdamW
  optimizer.rate = warmup_cosine(1e-2, 10, steps < 20 ? 20 : steps, 1e-3);
  optimizer.weight_decay = 0.1;
  optimizer.no_decay = {"*.bias", "*.ln_*"};
  const Module step = train_step({{"tokens", DType::I32, {batch, context}}, {"targets", DType::I32, {batch, context}}},
                                 [=](Scope s, Inputs in) -> Loss {
                                   const Value logits = gpt(s, in["tokens"], options);
                                   return cross_entropy(logits, in["targets"]).output("logits", logits);
                                 },
                                 optimizer, {.clip_norm = 1.0, .micro_batches = 2});

  Trainer trainer(step, {.mesh = "data=2", .seed = 1});
  std::printf("%lld parameters\n", static_cast<long long>(trainer.parameter_elements()));
  Loader loader(data.train, {.batch = 16, .seed = 1});
  for (int64_t i = 0; i < steps; ++i) {
    const StepResult result = trainer.step(loader.next()->arrays);
    if (i % 10 == 0 || i + 1 == steps)
      std::printf("step %4lld  loss %.4f nats a byte  gradient norm %.3f\n", static_cast<long long>(i), result.loss, result.gradient_norm.value_or(0));
  }
  Trainer writer(step, {});  // one row at a time needs no mesh
  writer.load_state(trainer.state(), trainer.steps_done());
  std::printf("held-out loss %.4f\n%s\n", evaluate(trainer, data.test, 16, 10).loss.value(), write(writer, "It is a truth universally ", context, 40).c_str());
} catch (const Error& error) {
  std::fprintf(stderr, "gpt_text: %s\n", error.what());
  return 2;
}
