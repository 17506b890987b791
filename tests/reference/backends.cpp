// SPDX-License-Identifier: Apache-2.0
// Whole training steps under the compiled back ends: as the oracle's, and to the bit the same for any number of threads, with and without fusion, and where memory that
// nothing has written is NaN.
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/trainer.h"
#include "tests/reference/step_programs.h"
#include "tests/support/close.h"

namespace stepgraph {
namespace backends_test {

using testing::Program;
using testing::ZooModel;
using Outputs = std::vector<Literal>;

Outputs run(const Program& program, const BackendOptions& options) { return run_local_once(program.local, "step", program.inputs, options, program.symbols); }

void check_backends(const Program& program) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const Outputs wanted = run(program, {.backend = Backend::Reference});
  const double tolerance = program.tolerance * 20;
  const Outputs full = run(program, {.backend = Backend::Full, .threads = 1});
  testing::expect_same_outputs(full, wanted, tolerance, program.local, program.name + " full");
  const Outputs two = run(program, {.backend = Backend::Full, .threads = 2, .poison = true});
  testing::expect_same_outputs(two, full, 0, program.local, program.name + " on two threads, poisoned");
  const Outputs apart = run(program, {.backend = Backend::Full, .threads = 3, .skip = {"fuse", "recompute"}, .canaries = true});
  testing::expect_same_outputs(apart, full, 0, program.local, program.name + " not fused, on three threads, with canaries");
  const Outputs eager = run(program, {.backend = Backend::Eager, .threads = 2});
  testing::expect_same_outputs(eager, wanted, tolerance, program.local, program.name + " eager");
}

/// Losses and states of some steps of a trainer, whose states are written in place.
struct Trained {
  std::vector<double> losses;
  NamedArrays state;
};
Trained train(const std::string& model, const ModelOptionValues& options, const std::string& mesh, const BackendOptions& backend) {
  ModelDefinition definition = define_model(model, options);
  const Module step = train_step(capture(definition.inputs, definition.function, definition.capture), {.epsilon = 1e-3}, {.clip_norm = 1.0, .micro_batches = 1});
  Trainer trainer(step, {.mesh = mesh, .seed = 4, .backend = backend});
  Trained trained;
  for (const int64_t rows : {8, 8, 5, 1, 8}) {
    NamedArrays batch;
    for (const InputSpec& input : definition.inputs) {
      Sizes sizes;
      for (const Dim& dim : input.shape) sizes.push_back(dim.is_constant() ? dim.constant() : rows);
      Literal value(input.dtype, sizes);
      for (int64_t i = 0; i < value.count(); ++i) {
        if (is_floating(input.dtype)) value.set(i, std::sin(1.3 * static_cast<double>(i + rows)));
        else value.set_integer(i, (i * 5 + i / 3 + rows) % 4);
      }
      batch.emplace_back(input.name, std::move(value));
    }
    trained.losses.push_back(trainer.step(batch).loss);
  }
  trained.state = trainer.state();
  return trained;
}

void expect_alike(const Trained& found, const Trained& wanted, const std::string& what) {
  for (size_t i = 0; i < wanted.losses.size(); ++i) EXPECT_NEAR(found.losses[i], wanted.losses[i], 2e-4 * std::fabs(wanted.losses[i])) << what << " step " << i;
  ASSERT_EQ(found.state.size(), wanted.state.size());
  for (size_t i = 0; i < wanted.state.size(); ++i)
    EXPECT_EQ(testing::compare_values(found.state[i].second, wanted.state[i].second, 2e-3), "") << what << " " << wanted.state[i].first;
}

/// Batches of other sizes in one run, on one rank and on two.
TEST(BackendTrainers, LearnAsTheOracle) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const std::vector<std::pair<std::string, ModelOptionValues>> models = {
      {"mlp", {{"size", "3"}, {"hidden", "8,5"}, {"classes", "4"}, {"dropout", "0.3"}}},
      {"gpt", {{"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"context", "5"}, {"vocabulary", "11"}}},
      {"lstm", {{"layers", "2"}, {"width", "8"}, {"context", "6"}, {"vocabulary", "11"}}},
  };
  for (const auto& [model, options] : models) {
    const Trained wanted = train(model, options, "", {.backend = Backend::Reference});
    for (const char* mesh : {"", "data=2"})
      expect_alike(train(model, options, mesh, {.backend = Backend::Full, .threads = 2}), wanted, model + " on " + (*mesh == 0 ? "one" : mesh));
  }
}

/// Where updates stand among the instructions of backward, nothing of a bad step is committed either: not for numbers that are none, not for an index.
TEST(BackendTrainers, KeepTheirStateInABadStep) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  struct Bad {
    std::string model;
    ModelOptionValues options;
    std::string input, message;
    double value;
  };
  const ModelOptionValues gpt = {{"layers", "1"}, {"width", "8"}, {"heads", "2"}, {"context", "5"}, {"vocabulary", "11"}};
  for (const Bad& bad : {Bad{"mlp", {{"size", "3"}, {"hidden", "8"}, {"classes", "4"}}, "image", "the loss is not finite", std::nan("")},
                         Bad{"gpt", gpt, "tokens", "index 11 is outside of [0, 11)", 11}, Bad{"gpt", gpt, "tokens", "index -1 is outside of [0, 11)", -1},
                         Bad{"gpt", gpt, "targets", "index 11 is outside of [0, 11)", 11}}) {
    const ModelDefinition definition = define_model(bad.model, bad.options);
    const Module step = train_step(capture(definition.inputs, definition.function, definition.capture), {}, {});
    Trainer trainer(step, {.seed = 4, .backend = {.backend = Backend::Full, .threads = 2}});
    NamedArrays good, wrong;
    for (const InputSpec& input : definition.inputs) {
      Sizes sizes;
      for (const Dim& dim : input.shape) sizes.push_back(dim.is_constant() ? dim.constant() : 4);
      Literal value(input.dtype, sizes);
      for (int64_t i = 0; i < value.count(); ++i) value.set(i, static_cast<double>((i * 5 + i / 3) % 4));
      good.emplace_back(input.name, value);
      if (input.name == bad.input) value.set(value.count() - 1, bad.value);
      wrong.emplace_back(input.name, std::move(value));
    }
    trainer.step(good);
    const NamedArrays before = trainer.state();
    std::string message = "nothing";
    try {
      trainer.step(wrong);
    } catch (const UserError& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.model << ", " << bad.input << ": " << message;
    EXPECT_TRUE(trainer.state() == before) << bad.model << ", " << bad.input;
    EXPECT_NO_THROW(trainer.step(good)) << bad.model << ", " << bad.input;
    EXPECT_FALSE(trainer.state() == before) << bad.model << ", " << bad.input;
  }
}

class BackendZoo : public ::testing::TestWithParam<ZooModel> {};
TEST_P(BackendZoo, ComputeTheStep) { check_backends(testing::zoo_program(GetParam(), DType::F32, 1, "")); }
TEST_P(BackendZoo, ComputeUpdatesAmongGradients) { check_backends(testing::zoo_program(GetParam(), DType::F32, 1, "", false)); }
TEST_P(BackendZoo, ComputeMicroBatches) { check_backends(testing::zoo_program(GetParam(), DType::F32, 2, "")); }
TEST_P(BackendZoo, ComputeHalves) {
  if (GetParam().name == "resnet") return;  // twenty batch norms over four rows make much of the last bit of a half
  check_backends(testing::zoo_program(GetParam(), DType::BF16, 1, ""));
}
INSTANTIATE_TEST_SUITE_P(Models, BackendZoo, ::testing::ValuesIn(testing::zoo_models()), [](const auto& info) { return info.param.name; });

/// Parameters that are large enough to be updated by themselves, right after their gradient.
TEST(BackendUpdates, OfLargeParametersAsTheOracle) {
  const ZooModel large{"gpt", {{"layers", "1"}, {"width", "512"}, {"heads", "4"}, {"context", "4"}, {"vocabulary", "530"}}, 2, 530};
  check_backends(testing::zoo_program(large, DType::F32, 1, "", false));
}

class BackendSamples : public ::testing::TestWithParam<const char*> {};
TEST_P(BackendSamples, ComputeTheStep) { check_backends(testing::sample_program(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Imported, BackendSamples, ::testing::ValuesIn(testing::sample_names()), [](const auto& info) { return std::string(info.param); });

}  // namespace backends_test
}  // namespace stepgraph
