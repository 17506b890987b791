// SPDX-License-Identifier: Apache-2.0
// stepgraph train on models from files and on every kind of data; eval and generate on what it left.
#include <gtest/gtest.h>

#include <cstring>

#include "stepgraph/train/data/arrays.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace model_data_test {

const Arguments digits = {"--data-kind", "digits", "--data", source_file("data/digits.csv"), "--batch", "16", "--json"};
const Arguments small_gpt = {"--model", "gpt", "-o", "layers=1", "-o", "width=16", "-o", "heads=2", "-o", "context=16"};
const Arguments austen = {"--data", source_file("data/austen.txt"), "--context", "16", "--batch", "8", "--eval-limit", "2"};

std::map<int, std::string> losses(const Arguments& arguments) {
  const Outcome outcome = run_tool(Arguments{"train"} + arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return read_training(outcome.out).losses();
}

Outcome refused(const Arguments& arguments, const std::string& message) {
  Outcome outcome = run_tool(arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  return outcome;
}

TEST(ModelFiles, ForwardAndStepTrainAsTheZooDoes) {
  const TemporaryDirectory directory;
  const Arguments steps = {"--steps", "4", "--eval-every", "-1"};
  const Arguments options = {"--lr", "1e-2", "--clip-norm", "1", "--micro-batches", "2"};
  for (const std::string model : {"mlp", "convnet"}) {
    const std::string forward = directory / "forward.sg", step = directory / "step.sg";
    write_text(forward, run_tool({"show", model, "--at", "forward"}).out);
    write_text(step, run_tool(Arguments{"show", model, "--at", "step"} + options).out);
    const auto expected = losses(Arguments{"--model", model} + digits + steps + options);
    EXPECT_EQ(expected.size(), 4u);
    EXPECT_EQ(losses(Arguments{"--model", forward} + digits + steps + options), expected) << model;
    EXPECT_EQ(losses(Arguments{"--model", step} + digits + steps), expected) << model;
  }
}

TEST(ModelFiles, WhatIsNoModelToTrainIsRefused) {
  const TemporaryDirectory directory;
  const std::string local = directory / "local.sg";
  write_text(local, run_tool({"show", "mlp", "--at", "local", "--mesh", "data=2"}).out);
  const Arguments rest = digits + Arguments{"--steps", "1"};
  refused(Arguments{"train", "--model", local} + rest, "is at stage local, wanted logical: what is trained is compiled for its mesh itself");
  refused(Arguments{"train", "--model", source_file("examples/square.sg")} + rest, "has no entry 'forward'");
  refused(Arguments{"train", "--model", directory / "none.sg"} + rest, "cannot open");
  refused(Arguments{"train", "--model", local, "-o", "width=3"} + rest, "options are for models of the zoo");
  write_text(directory / "broken.sg", "stepgraph 1\nmodule m\ngraph @main {\n");
  refused(Arguments{"train", "--model", directory / "broken.sg"} + rest, "broken.sg:4:1: found the end");
}

std::string returns(const std::string& form) { return source_file("tests/samples/cases/returns/" + form + ".pt2"); }

TEST(Pt2Losses, AreFoundByTheKeyLoss) {
  const TemporaryDirectory directory;
  NamedArrays arrays = {{"x", Literal(DType::F32, {24, 3})}, {"y", Literal(DType::I64, {24})}};
  for (int64_t i = 0; i < 72; ++i) arrays[0].second.set(i, static_cast<double>((i * 31) % 13) / 6 - 1);
  for (int64_t i = 0; i < 24; ++i) arrays[1].second.set_integer(i, i % 2);
  write_npz(directory / "d.npz", arrays);
  const Arguments rest = {"--data", directory / "d.npz", "--batch", "8", "--steps", "3", "--lr", "0.1", "--eval-every", "-1", "--json"};
  const auto of = [&](const std::string& form, const Arguments& more = {}) { return losses(Arguments{"--model", returns(form)} + more + rest); };
  const auto wanted = of("one");  // (logits, loss): its only scalar
  EXPECT_NE(wanted.at(0), wanted.at(2)) << "it learns";
  EXPECT_EQ(of("under_loss"), wanted) << "not the accuracy, which comes first";
  EXPECT_EQ(of("deep"), wanted);
  EXPECT_EQ(of("several", {"-o", "loss=output:entropy"}), wanted);
  EXPECT_EQ(of("pair", {"-o", "loss=output:1"}), wanted);
  EXPECT_EQ(of("one", {"-o", "loss=cross_entropy", "--bind", "target=y,y=y"}), wanted);
  const auto told = [&](const std::string& form, const std::string& message, const Arguments& more = {}) {
    refused(Arguments{"train", "--model", returns(form)} + more + rest, message);
  };
  told("several",
       "several.pt2: the model returns several scalars, accuracy f32[], entropy f32[], and none under the key loss: say which is the loss with -o "
       "loss=output:accuracy");
  told("pair", "pair.pt2: the model returns several scalars, 0 f32[], 1 f32[], and none under the key loss");
  told("vector", "vector.pt2: the model returns loss f32[");
  told("several", "model option loss=output:loss: the model has no output 'loss'; it has accuracy f32[], entropy f32[]", {"-o", "loss=output:loss"});
  told("one", "model option loss=output:0: the output is f32[", {"-o", "loss=output:0"});
  told("detached", "the loss depends on no parameter that is to be trained: no gradient reaches fc.weight, fc.bias, unread.weight, unread.bias");
  told("several", "the loss depends on no parameter that is to be trained", {"-o", "loss=output:accuracy"});
  const Outcome noted = run_tool(Arguments{"train", "--model", returns("under_loss")} + rest);
  EXPECT_NE(noted.err.find("note    no gradient reaches 2 of 4 parameters, which stay as they are: unread."), std::string::npos) << noted.err;
  EXPECT_EQ(run_tool(Arguments{"train", "--model", returns("under_loss"), "--freeze", "unread.*"} + rest).err.find("no gradient reaches"), std::string::npos);
  EXPECT_EQ(run_tool(Arguments{"eval", "--model", returns("detached"), "--data", directory / "d.npz"}).code, 0) << "it can be evaluated";
}

/// The first `count` digits as arrays.
NamedArrays digit_arrays(int64_t count) {
  const CsvTable table = read_csv(source_file("data/digits.csv"));
  Literal image(DType::F32, {count, 1, 8, 8}), label(DType::I64, {count});
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t pixel = 0; pixel < 64; ++pixel) image.set(row * 64 + pixel, table.values.at(row * 65 + pixel) / 16);
    label.set_integer(row, static_cast<int64_t>(table.values.at(row * 65 + 64)));
  }
  return {{"image", image}, {"label", label}};
}

TEST(DataFiles, NpzSafetensorsAndCsvAreEqual) {
  const TemporaryDirectory directory;
  const NamedArrays arrays = digit_arrays(100);
  write_npz(directory / "d.npz", arrays);
  write_safetensors(directory / "d.safetensors", {arrays, {}});
  std::string csv = "pixels only\n";
  csv.clear();
  for (int64_t row = 0; row < 100; ++row) {
    for (int64_t pixel = 0; pixel < 64; ++pixel) csv += std::to_string(arrays[0].second.at(row * 64 + pixel) * 16) + ",";
    csv += std::to_string(arrays[1].second.integer_at(row)) + "\n";
  }
  write_text(directory / "d.csv", csv);
  const Arguments job = {"--model", "mlp", "--batch", "20", "--steps", "4", "--json", "--shuffle", "false"};
  const auto from_npz = losses(job + Arguments{"--data", directory / "d.npz", "--test-data", directory / "d.safetensors"});
  EXPECT_EQ(from_npz.size(), 4u);
  EXPECT_EQ(losses(job + Arguments{"--data", directory / "d.safetensors", "--test-data", directory / "d.npz"}), from_npz);
  // The test rows of a .csv are taken out of the order: with the last row alone as the test set the first four batches are the same.
  EXPECT_EQ(losses(job + Arguments{"--data", directory / "d.csv", "--sample", "1,8,8", "--scale", "0.0625", "--test-every", "100", "--test-rest", "99"}),
            from_npz);
  refused(Arguments{"train"} + job + Arguments{"--data", directory / "d.csv"}, "batch input image: found sizes [20, 64], the model wants f32[batch, 1, 8, 8]");
  refused(Arguments{"train"} + job + Arguments{"--data", directory / "d.csv", "--sample", "1,8,8", "--input", "x"}, "the batch has no array 'image'");
}

template <class Token>
void write_tokens(const std::string& path, const std::string& text) {
  std::string bytes;
  for (const unsigned char character : text) {
    const Token token = character;
    bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
  }
  write_text(path, bytes);
}

TEST(DataFiles, TextAndTokenFilesAreEqual) {
  const TemporaryDirectory directory;
  const std::string text = read_text(source_file("data/austen.txt")).substr(0, 4000);
  write_text(directory / "t.txt", text);
  write_tokens<uint16_t>(directory / "t.u16", text);
  write_tokens<uint32_t>(directory / "t.u32", text);
  const Arguments job = small_gpt + Arguments{"--context", "16", "--batch", "4", "--steps", "3", "--json"};
  const auto from_text = losses(job + Arguments{"--data", directory / "t.txt"});
  EXPECT_EQ(from_text.size(), 3u);
  EXPECT_EQ(losses(job + Arguments{"--data", directory / "t.u16", "--data-kind", "tokens_u16"}), from_text);
  EXPECT_EQ(losses(job + Arguments{"--data", directory / "t.u32", "--data-kind", "tokens_u32"}), from_text);
  refused(Arguments{"train"} + job + Arguments{"--data", directory / "t.u16"}, "does not tell what it holds");
  refused(Arguments{"train"} + job + Arguments{"--data", directory / "t.txt", "--data-vocabulary", "100"}, "the vocabulary ends at 99");
}

TEST(Eval, GivesTheLossOfTheRun) {
  const TemporaryDirectory directory;
  const Arguments job = Arguments{"--model", "mlp"} + digits + Arguments{"--checkpoint", directory / "run"};
  const Outcome trained = run_tool(Arguments{"train"} + job + Arguments{"--steps", "5"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const TrainingLines lines = read_training(trained.out);
  ASSERT_TRUE(lines.last);
  // Whatever the optimizer was; and of one checkpoint as well as of the directory.
  for (const Arguments& other : {Arguments{}, Arguments{"--optimizer", "sgd", "--lr", "1"}, Arguments{"--checkpoint", directory / "run/step-00000005"}}) {
    const Outcome outcome = run_tool(Arguments{"eval"} + job + other);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto found = read_json_lines(outcome.out);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].values.at("test_loss"), lines.last->values.at("test_loss"));
    EXPECT_EQ(found[0].values.at("test_accuracy"), lines.last->values.at("test_accuracy"));
    EXPECT_EQ(found[0].number("step"), 5);
    EXPECT_EQ(found[0].number("samples"), 360);
  }
  const Outcome split = run_tool(Arguments{"eval"} + job + Arguments{"--mesh", "data=3"});
  ASSERT_EQ(split.code, 0) << split.err;
  EXPECT_NEAR(read_json_lines(split.out)[0].number("test_loss"), lines.last->number("test_loss"), 1e-5);
}

TEST(Eval, RefusesAnotherModelsCheckpoint) {
  const TemporaryDirectory directory;
  const Arguments rest = digits + Arguments{"--checkpoint", directory / "run"};
  refused(Arguments{"eval", "--model", "mlp"} + rest, "has no checkpoint");
  ASSERT_EQ(run_tool(Arguments{"train", "--model", "mlp", "--steps", "1"} + rest).code, 0);
  refused(Arguments{"eval", "--model", "convnet"} + rest, "step-00000001: was saved by another model");
  refused(Arguments{"eval", "--model", "mlp", "-o", "hidden=128"} + rest, "was saved by another model");
  refused(Arguments{"eval", "--model", "mlp"} + digits, "eval needs --checkpoint DIR");
}

TEST(Generate, WritesTheSameTextForASeed) {
  const TemporaryDirectory directory;
  const Arguments kept = {"--checkpoint", directory / "run"};
  const Outcome trained = run_tool(Arguments{"train"} + small_gpt + austen + kept + Arguments{"--steps", "10", "--lr", "1e-2"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Arguments job = Arguments{"generate"} + small_gpt + kept + Arguments{"--prompt", "It is a", "--tokens", "30"};
  const Outcome outcome = run_tool(job);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.rfind("It is a", 0), 0u);
  EXPECT_EQ(outcome.out.size(), 7 + 30 + 1u);
  EXPECT_EQ(run_tool(job).out, outcome.out);
  EXPECT_NE(run_tool(job + Arguments{"--seed", "5"}).out, outcome.out);
  const std::string greedy = run_tool(job + Arguments{"--temperature", "0"}).out;
  EXPECT_EQ(run_tool(job + Arguments{"--top-k", "1", "--seed", "9"}).out, greedy);
  refused(job + Arguments{"--tokens", "-1"}, "--tokens: found -1, wanted at least 0");
  refused(job + Arguments{"--temperature", "nan"}, "--temperature: wanted at least 0");
  refused(job + Arguments{"--prompt", ""}, "--prompt: wanted at least one character");
  refused(Arguments{"generate", "--model", "mlp"} + kept, "generate needs a language model");
}

}  // namespace model_data_test
}  // namespace stepgraph::testing
