// SPDX-License-Identifier: Apache-2.0
// --precision and --loss-scale: by flag and by key, for models of the zoo and of PyTorch, over ranks, stopped and resumed.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace precision_test {

const Arguments mlp = {"train",   "--model", "mlp",  "--data-kind", "digits",       "--data", source_file("data/digits.csv"),
                       "--batch", "32",      "--lr", "1e-2",        "--eval-every", "-1",     "--json"};

TrainingLines train(const Arguments& arguments) {
  const Outcome outcome = run_tool(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return read_training(outcome.out);
}
void expect_error(const Arguments& arguments, const std::string& message) {
  const Outcome outcome = run_tool(arguments);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

TEST(PrecisionFlag, IsCloseToF32AndNotTheSame) {
  const TrainingLines full = train(mlp + Arguments{"--steps", "20"});
  EXPECT_FALSE(full.steps.at(0).has("loss_scale"));
  for (const char* precision : {"bf16", "f16"}) {
    const TrainingLines mixed = train(mlp + Arguments{"--steps", "20", "--precision", precision, "--mesh", "data=2"});
    ASSERT_EQ(mixed.steps.size(), 20u);
    EXPECT_NEAR(mixed.steps.back().number("loss"), full.steps.back().number("loss"), 0.02) << precision;
    EXPECT_NE(mixed.losses(), full.losses());
    EXPECT_EQ(mixed.last->values.at("precision"), "\"" + std::string(precision) + "\"");
    EXPECT_EQ(mixed.steps[0].has("loss_scale"), std::string(precision) == "f16");
  }
}

TEST(PrecisionFlag, LossScaleIsReportedAndSurvivesAResume) {
  const TemporaryDirectory folder;
  const Arguments job = mlp + Arguments{"--precision", "f16", "--loss-scale", "dynamic:1e9", "--loss-scale-interval", "3"};
  const TrainingLines whole = train(job + Arguments{"--steps", "24"});
  int64_t skipped = 0;
  double scale = whole.steps.at(0).number("loss_scale");
  EXPECT_EQ(scale, 1e9);
  for (const JsonLine& step : whole.steps) {
    EXPECT_EQ(std::abs(std::log2(step.number("loss_scale") / scale)), std::round(std::abs(std::log2(step.number("loss_scale") / scale))));
    scale = step.number("loss_scale");
    skipped += step.values.at("skipped") == "true";
  }
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, 24);
  EXPECT_EQ(whole.last->number("skipped"), static_cast<double>(skipped));
  train(job + Arguments{"--steps", "9", "--checkpoint", folder / "runs"});
  const TrainingLines rest = train(job + Arguments{"--steps", "24", "--checkpoint", folder / "runs", "--resume"});
  ASSERT_EQ(rest.steps.size(), 15u);
  EXPECT_EQ(rest.last->number("skipped"), static_cast<double>(skipped)) << "those before the resume count";
  for (size_t i = 0; i < rest.steps.size(); ++i)
    for (const char* key : {"loss", "loss_scale", "skipped"})
      EXPECT_EQ(rest.steps[i].values.at(key), whole.steps[9 + i].values.at(key)) << key << " of step " << 9 + i;
}

TEST(PrecisionFlag, KeysOfAJobFile) {
  const TemporaryDirectory folder;
  write_text(folder / "job.toml", "[model]\nname = \"mlp\"\n[data]\nkind = \"digits\"\npath = \"" + source_file("data/digits.csv") +
                                      "\"\n[train]\nsteps = 2\neval_every = -1\nprecision = \"f16\"\nautocast = \"cuda\"\nloss_scale = \"1024\"\n");
  const TrainingLines lines = train({"train", "--config", folder / "job.toml", "--json"});
  EXPECT_EQ(lines.steps.at(1).number("loss_scale"), 1024);
  EXPECT_FALSE(train({"train", "--config", folder / "job.toml", "--json", "--loss-scale", "none"}).steps.at(0).has("loss_scale"));
  EXPECT_FALSE(train({"train", "--config", folder / "job.toml", "--json", "--precision", "f32", "--loss-scale", "none"}).last->has("precision"));
}

TEST(PrecisionFlag, AModelOfPyTorch) {
  const TemporaryDirectory folder;
  const Arguments show = {"show", "--model", source_file("tests/samples/mlp_gelu/model.pt2"), "--at", "forward"};
  const std::string plain = run_tool(show).out, mixed = run_tool(show + Arguments{"--precision", "bf16"}).out;
  EXPECT_EQ(plain.find("bf16"), std::string::npos);
  EXPECT_NE(mixed.find("explicit=false"), std::string::npos) << mixed.substr(0, 2000);
  EXPECT_NE(mixed.find("bf16["), std::string::npos);
}

TEST(PrecisionFlag, Errors) {
  const Arguments data = {"--data-kind", "digits", "--data", source_file("data/digits.csv"), "--steps", "1"};
  expect_error(Arguments{"train", "--model", "mlp", "--precision", "bf17"} + data, "--precision: found 'bf17', wanted one of f32, bf16, f16");
  expect_error(Arguments{"train", "--model", "mlp", "--autocast", "tpu"} + data, "--autocast: found 'tpu', wanted one of cpu, cuda");
  expect_error(Arguments{"train", "--model", "mlp", "--loss-scale", "much"} + data,
               "--loss-scale: found 'much', wanted none, dynamic, dynamic:START or a number");
  expect_error(Arguments{"train", "--model", "mlp", "--loss-scale", "dynamically"} + data, "--loss-scale: found 'dynamically'");
  expect_error(Arguments{"train", "--model", "mlp", "--loss-scale", "0"} + data, "loss scale: the scale is 0, wanted a number from 2^-126 to 2^126");
  expect_error(Arguments{"train", "--model", source_file("examples/square.sg"), "--precision", "bf16"} + data, "is a text whose casts are fixed");
}

/// Weights of one precision are not taken for those of another by mistake.
TEST(PrecisionFlag, ACheckpointBelongsToItsPrecision) {
  const TemporaryDirectory folder;
  const Arguments model = {"--model", "mlp", "--data-kind", "digits", "--data", source_file("data/digits.csv")};
  train(mlp + Arguments{"--steps", "1", "--precision", "bf16", "--checkpoint", folder / "runs"});
  expect_error(Arguments{"eval", "--checkpoint", folder / "runs"} + model, "or with another precision");
  EXPECT_EQ(run_tool(Arguments{"eval", "--checkpoint", folder / "runs", "--precision", "bf16"} + model).code, 0);
}

}  // namespace precision_test
}  // namespace stepgraph::testing
