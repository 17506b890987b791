// SPDX-License-Identifier: Apache-2.0
// Folders of images and files of weights, through the command.
#include <gtest/gtest.h>

#include "stepgraph/train/data/arrays.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace images_weights_test {

void refused(const Arguments& arguments, const std::string& message) {
  const Outcome outcome = run_tool(arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

TrainingLines trained(const Arguments& arguments) {
  const Outcome outcome = run_tool(Arguments{"train"} + arguments + Arguments{"--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return read_training(outcome.out);
}
std::vector<std::string> losses(const Arguments& arguments) {
  std::vector<std::string> found;
  for (const JsonLine& step : trained(arguments).steps) found.push_back(step.values.at("loss"));
  return found;
}

const Arguments images = {"--data", source_file("tests/images/set"), "--batch", "5", "--test-every", "4"};
const Arguments convnet = {"--model", "convnet", "-o", "channels=3", "-o", "size=16", "-o", "classes=2", "-o", "width=4", "--crop", "16"};

TEST(ImageJobs, ModelsTrainOnAFolder) {
  const Arguments job = images + Arguments{"--epochs", "12", "--lr", "2e-2"};
  const TrainingLines small = trained(convnet + job);
  ASSERT_EQ(small.steps.size(), 24u);
  EXPECT_LT(small.steps.back().number("loss"), small.steps.front().number("loss") / 2);
  EXPECT_GE(small.last->number("test_accuracy"), 0.5);
  const TrainingLines deep =
      trained(Arguments{"--model", "resnet", "-o", "size=16", "-o", "classes=2", "-o", "width=4", "-o", "stem=small", "-o", "blocks=1,1,1,1", "--crop", "16"} +
              images + Arguments{"--steps", "4", "--flip"});
  EXPECT_EQ(deep.steps.size(), 4u);
}

TEST(ImageJobs, TheSameWithAndWithoutPrefetchAndMirroredBySeed) {
  const Arguments job = convnet + images + Arguments{"--steps", "6", "--flip", "--seed", "3"};
  const std::vector<std::string> wanted = losses(job);
  EXPECT_EQ(losses(job + Arguments{"--prefetch", "0"}), wanted);
  EXPECT_NE(losses(job + Arguments{"--flip", "false"}), wanted);
}

TEST(ImageJobs, BadOptionsAndFoldersAreRefused) {
  const Arguments job = Arguments{"train"} + convnet + images + Arguments{"--steps", "1"};
  refused(job + Arguments{"--crop", "0"}, "--crop: found 0, wanted at least 1");
  refused(job + Arguments{"--crop", "4,4,4"}, "images: crop has 3 numbers");
  refused(job + Arguments{"--mean", "1,2"}, "images: mean has 2 and std 3 numbers");
  refused(job + Arguments{"--std", "1,0,1"}, "images: std 0, wanted numbers above 0");
  refused(job + Arguments{"--crop", "20"}, "batch input image: found sizes [5, 3, 20, 20], the model wants f32[batch, 3, 16, 16]");
  refused(job + Arguments{"--data", source_file("tests/images/set/jpeg")}, "has no folders, wanted one for each class");
  refused(job + Arguments{"--data", source_file("tests/images/expected.safetensors"), "--data-kind", "images"}, "is no folder");
}

TEST(WeightJobs, WhatIsSavedIsWhereAnotherRunStarts) {
  const TemporaryDirectory directory;
  const Arguments digits = {"--data", source_file("data/digits.csv"), "--data-kind", "digits", "--model", "convnet", "-o", "width=4", "--eval-limit", "3"};
  const std::string file = directory / "w.safetensors";
  const TrainingLines first = trained(digits + Arguments{"--steps", "4", "--save-weights", file});
  const Outcome evaluated = run_tool(Arguments{"eval", "--weights", file, "--json"} + digits + Arguments{"--eval-limit", "0"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_EQ(read_json_lines(evaluated.out)[0].values.at("test_loss"), first.last->values.at("test_loss"));
  // Without a step in between nothing changes but the optimizer's state.
  const Arguments none = {"--steps", "1", "--lr", "0", "--optimizer", "sgd"};
  const std::string again = directory / "again.safetensors";
  trained(digits + none + Arguments{"--weights", file, "--save-weights", again});
  const Safetensors before = read_safetensors(file), after = read_safetensors(again);
  EXPECT_EQ(find_array(after.arrays, "fc.weight")->to_doubles(), find_array(before.arrays, "fc.weight")->to_doubles());
  EXPECT_EQ(find_array(after.arrays, "bn1.num_batches_tracked")->integer_at(0), 5);
  EXPECT_LT(trained(digits + none + Arguments{"--weights", file}).steps[0].number("loss"), first.steps[0].number("loss"));
  refused(Arguments{"eval", "--weights", file} + digits + Arguments{"-o", "width=5"},
          "w.safetensors does not fit the model; bn1.bias is f32[4], wanted f32[5], ");
  refused(Arguments{"train", "--weights", directory / "none.safetensors", "--steps", "1"} + digits, "cannot open");
}

TEST(WeightJobs, TextIsGeneratedFromWeights) {
  const TemporaryDirectory directory;
  const Arguments gpt = {"--model", "gpt", "-o", "layers=1", "-o", "width=16", "-o", "heads=2", "-o", "context=16", "--seed", "1"};
  const std::string file = directory / "w.safetensors";
  trained(gpt + Arguments{"--data", source_file("data/austen.txt"), "--context", "16", "--steps", "2", "--eval-every", "-1", "--save-weights", file,
                          "--checkpoint", directory / "run"});
  const Safetensors saved = read_safetensors(file);
  EXPECT_EQ(*find_array(saved.arrays, "lm_head.weight"), *find_array(saved.arrays, "transformer.wte.weight"));
  const Arguments text = {"--prompt", "It is", "--tokens", "9"};
  const Outcome from_weights = run_tool(Arguments{"generate", "--weights", file} + gpt + text);
  ASSERT_EQ(from_weights.code, 0) << from_weights.err;
  EXPECT_EQ(from_weights.out, run_tool(Arguments{"generate", "--checkpoint", directory / "run"} + gpt + text).out);
  refused(Arguments{"generate"} + gpt + text, "generate needs --checkpoint DIR");
}

}  // namespace images_weights_test
}  // namespace stepgraph::testing
