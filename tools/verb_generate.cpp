// SPDX-License-Identifier: Apache-2.0
// stepgraph generate
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>

#include "stepgraph/tensor/philox.h"
#include "stepgraph/train/weights.h"
#include "tools/job_options.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

struct GenerateFlags {
  JobFlags job;
  std::string prompt = "The ";
  int64_t tokens = 200, top_k = 0;
  double temperature = 0.8;
};

/// The next token by temperature and top-k; temperature 0 takes the likeliest. The draw is a function of (seed, position).
int32_t sample(const std::vector<double>& logits, const GenerateFlags& flags, uint64_t seed, int64_t position) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  if (flags.temperature == 0) return order[0];
  if (flags.top_k > 0 && static_cast<size_t>(flags.top_k) < order.size()) order.resize(static_cast<size_t>(flags.top_k));
  std::vector<double> weights;
  double total = 0;
  for (int32_t token : order) {
    weights.push_back(std::exp((logits[static_cast<size_t>(token)] - logits[static_cast<size_t>(order[0])]) / flags.temperature));
    total += weights.back();
  }
  const auto bits = philox4x32({static_cast<uint32_t>(position), 0, 0, 0x67656e}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  double left = uniform_from_bits(bits[0]) * total;
  for (size_t i = 0; i < order.size(); ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order.back();
}

class Generator {
 public:
  Generator(Trainer& trainer, const TrainJob& job) : trainer_(trainer), job_(job) {
    const Module& module = trainer.logical();
    const Graph& eval = module.graph(module.entry("eval"));
    const auto tokens = find_input(eval, RoleKind::Batch, "tokens");
    const auto logits = std::find_if(eval.outputs.begin(), eval.outputs.end(),
                                     [](const GraphOutput& output) { return output.role.kind == RoleKind::UserOutput && output.role.name == "logits"; });
    if (!tokens || logits == eval.outputs.end() || eval.type(logits->value).rank() != 3 || !find_input(eval, RoleKind::Batch, "targets") ||
        eval.type(*tokens).rank() != 2 || !eval.type(*tokens).shape[1].is_constant())
      throw UserError("generate needs a language model: batch inputs tokens and targets [batch, context] and an output logits; " + job.model.name + " has not");
    context_ = eval.type(*tokens).shape[1].constant();
    const Dim& classes = eval.type(logits->value).shape[2];
    vocabulary_ = classes.is_constant() ? classes.constant() : 0;
  }

  void run(const GenerateFlags& flags) {
    std::vector<int32_t> text;
    for (unsigned char byte : flags.prompt) {
      if (vocabulary_ > 0 && byte >= vocabulary_)
        throw UserError("--prompt: byte " + std::to_string(byte) + " is outside of the model's vocabulary of " + std::to_string(vocabulary_));
      text.push_back(byte);
    }
    std::fputs(flags.prompt.c_str(), stdout);
    for (int64_t i = 0; i < flags.tokens; ++i) {
      const int32_t next = sample(next_logits(text), flags, job_.seed, i);
      text.push_back(next);
      if (next > 255) throw UserError("token " + std::to_string(next) + " is no byte: generate prints byte-level models only");
      std::fputc(next, stdout);
      std::fflush(stdout);
    }
    std::fputc('\n', stdout);
  }

 private:
  /// The last `context` tokens at the left, padding behind: a causal model does not look there.
  std::vector<double> next_logits(const std::vector<int32_t>& text) {
    const int64_t used = std::min<int64_t>(context_, static_cast<int64_t>(text.size()));
    Literal tokens(DType::I32, {1, context_});
    std::copy(text.end() - used, text.end(), tokens.as_mutable<int32_t>().begin());
    const EvalResult result = trainer_.eval_batch({{"tokens", tokens}, {"targets", Literal(DType::I32, {1, context_})}});
    const Literal& logits = result.outputs.at("logits");
    const int64_t classes = logits.sizes().back();
    std::vector<double> row;
    for (int64_t c = 0; c < classes; ++c) row.push_back(logits.at((used - 1) * classes + c));
    if (std::any_of(row.begin(), row.end(), [](double logit) { return std::isnan(logit); })) throw UserError("the model's logits are not numbers");
    return row;
  }

  Trainer& trainer_;
  const TrainJob& job_;
  int64_t context_ = 0, vocabulary_ = 0;  // 0: not known
};

void generate(const GenerateFlags& flags) {
  const TrainJob job = read_job(flags.job).job;
  if (job.checkpoint.empty() && job.weights.empty())
    throw UserError("generate needs --checkpoint DIR: a directory of checkpoints, or one of them; or --weights FILE");
  if (flags.prompt.empty()) throw UserError("--prompt: wanted at least one character");
  if (flags.top_k < 0) throw UserError("--top-k: found " + std::to_string(flags.top_k) + ", wanted at least 0");
  if (flags.tokens < 0) throw UserError("--tokens: found " + std::to_string(flags.tokens) + ", wanted at least 0");
  if (!(flags.temperature >= 0) || !std::isfinite(flags.temperature)) throw UserError("--temperature: wanted at least 0");
  TrainerOptions options = trainer_options(job);
  options.largest_batch = 1;
  BuiltModel model = build_job_model(job);
  Trainer trainer(std::move(model.module), options);
  Generator generator(trainer, job);
  if (job.checkpoint.empty()) {
    load_weights(job.weights, trainer, model);
  } else {
    for (const std::string& message : restore_weights(trainer, job.checkpoint)) tell("note", message);
  }
  generator.run(flags);
}

}  // namespace

void add_generate(CLI::App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* verb = app.add_subcommand("generate", "text from a trained byte-level language model");
  add_job_flags(*verb, flags->job, {"checkpoint.directory", "train.weights", "train.seed", "train.backend", "train.threads", "train.tuning", "train.flush_denormals", "train.fullgraph"});
  verb->add_option("--prompt", flags->prompt, "text to go on from")->type_name("TEXT")->take_last()->capture_default_str();
  verb->add_option("--tokens", flags->tokens, "how many")->type_name("N")->take_last()->capture_default_str();
  verb->add_option("--temperature", flags->temperature, "0: always the likeliest")->type_name("X")->take_last()->capture_default_str();
  verb->add_option("--top-k", flags->top_k, "choose among the k likeliest; 0: all")->type_name("K")->take_last()->capture_default_str();
  verb->footer("The other options of train are taken too, so that a run is used with the flags that it was trained with.\n"
               "Example:\n  stepgraph generate --config examples/gpt.toml --checkpoint runs/gpt --prompt 'It is a truth' --tokens 300");
  verb->callback([flags] { generate(*flags); });
}

}  // namespace stepgraph
