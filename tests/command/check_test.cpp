// SPDX-License-Identifier: Apache-2.0
// stepgraph check, and PyTorch's models in train, show and eval.
#include <gtest/gtest.h>

#include <set>

#include "stepgraph/train/data/arrays.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace check_test {

const std::string mlp = "tests/samples/mlp_gelu";

/// Arrays for the sample mlp_gelu (x f32 [batch, 12], target i64 [batch]) under other names: a rule that can be learnt.
std::string write_data(const TemporaryDirectory& directory) {
  constexpr int64_t rows = 120, width = 12;
  Literal features(DType::F32, {rows, width}), labels(DType::I64, {rows});
  for (int64_t row = 0; row < rows; ++row) {
    labels.set_integer(row, row % 3);
    for (int64_t column = 0; column < width; ++column) features.set(row * width + column, (column % 3 == row % 3 ? 1.0 : 0.0) + 0.01 * static_cast<double>((row * 7 + column * 5) % 11));
  }
  const std::string path = directory / "data.npz";
  write_npz(path, {{"features", features}, {"labels", labels}});
  return path;
}

TEST(Check, TableAndExitCode) {
  const Outcome right = run_tool({"check", mlp, "--mesh", "data=2"});
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_NE(right.out.find("mlp_gelu: model.pt2 on data=2 agrees in all "), std::string::npos) << right.out;

  const TemporaryDirectory directory;
  const std::string copy = "cp -r " + source_file(mlp) + " . && chmod -R u+w mlp_gelu && sed '/\"name\": \"mlp_gelu\"/,$s/\"weight_decay\": 0.01/\"weight_decay\": 0/' " +
                           source_file("tests/samples/manifest.json") + " > manifest.json && $STEPGRAPH check mlp_gelu";
  const Outcome wrong = run_shell(copy, directory.path());
  EXPECT_EQ(wrong.code, 1) << wrong.out << wrong.err;
  EXPECT_NE(wrong.out.find("WRONG"), std::string::npos) << wrong.out;
  EXPECT_NE(wrong.out.find("mlp_gelu: model.pt2 differs in "), std::string::npos) << wrong.out;
}

TEST(Check, Json) {
  const Outcome outcome = run_tool({"check", mlp, "--program", "model_core.pt2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("{\"name\":\"mlp_gelu\",\"program\":\"model_core.pt2\",\"mesh\":\"\",\"ok\":true,\"warnings\":[")) << outcome.out;
  EXPECT_NE(outcome.out.find("\"tensor\":\"after.param."), std::string::npos);
}

TEST(Check, Refusals) {
  for (const auto& [arguments, message] : std::vector<std::pair<Arguments, std::string>>{
           {{"check", "docs"}, "has a manifest.json"},
           {{"check", mlp, "--backend", "fast"}, "--backend: found 'fast', wanted one of eager"},
           {{"check", mlp, "--program", "other.pt2"}, "other.pt2"},
           {{"check", mlp, "--mesh", "data"}, "mesh"}}) {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

TEST(PytorchModel, TrainsAndSavesWeightsByName) {
  const TemporaryDirectory directory;
  const Arguments job = {"--model", mlp + "/model.pt2", "--data", write_data(directory), "--bind", "x=features,target=labels", "--batch", "12", "--lr", "0.02"};
  const std::string saved = directory / "weights.safetensors";
  const Outcome trained = run_tool(Arguments{"train"} + job + Arguments{"--epochs", "4", "--json", "--mesh", "data=2", "--save-weights", saved});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<JsonLine> lines = read_json_lines(trained.out);
  EXPECT_LT(lines.back().number("test_loss"), 0.5 * lines.front().number("loss")) << trained.out;

  const NamedArrays before = read_safetensors(source_file(mlp + "/data.safetensors")).arrays;
  const NamedArrays after = read_safetensors(saved).arrays;
  std::set<std::string> wanted, found;
  for (const auto& [name, value] : before)
    if (name.starts_with("param.")) wanted.insert(name.substr(6));
  for (const auto& [name, value] : after) {
    found.insert(name);
    const Literal* start = find_array(before, "param." + name);
    ASSERT_NE(start, nullptr) << name;
    EXPECT_EQ(value.sizes(), start->sizes());
    EXPECT_FALSE(value == *start) << name << " was not trained";
  }
  EXPECT_EQ(found, wanted);

  // Without a checkpoint the weights of the file count.
  const Outcome evaluated = run_tool(Arguments{"eval"} + job + Arguments{"--json"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_GT(read_json_lines(evaluated.out)[0].number("test_loss"), 0.8);
  // The trained ones put over them give the loss of the run.
  const Outcome again = run_tool(Arguments{"eval"} + job + Arguments{"--json", "--mesh", "data=2", "--weights", saved});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_json_lines(again.out)[0].values.at("test_loss"), lines.back().values.at("test_loss"));
}

TEST(PytorchModel, TiedWeightsAreSavedUnderEachName) {
  const TemporaryDirectory directory;
  constexpr int64_t rows = 8, length = 16;
  Literal tokens(DType::I64, {rows, length});
  for (int64_t i = 0; i < tokens.count(); ++i) tokens.set_integer(i, i % 5);
  write_npz(directory / "tokens.npz", {{"idx", tokens}, {"target", tokens}});
  const std::string saved = directory / "weights.safetensors";
  const Outcome outcome = run_tool({"train", "--model", "tests/samples/tiny_gpt/model.pt2", "--data", directory / "tokens.npz", "--held-out", "2", "--batch", "4", "--steps", "1",
                                    "--save-weights", saved});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const NamedArrays weights = read_safetensors(saved).arrays;
  const Literal *embedding = find_array(weights, "wte.weight"), *head = find_array(weights, "head.weight");
  ASSERT_TRUE(embedding && head);
  EXPECT_TRUE(*embedding == *head);
  const Outcome again = run_tool({"eval", "--model", "tests/samples/tiny_gpt/model.pt2", "--data", directory / "tokens.npz", "--held-out", "2", "--weights", saved});
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST(PytorchModel, IsShownAtEveryStage) {
  for (const std::string stage : {"forward", "step", "sharded", "local"}) {
    const Outcome outcome = run_tool({"show", mlp + "/model.pt2", "--at", stage, "--mesh", "data=2"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("module model stage " + (stage == "forward" || stage == "step" ? std::string("logical") : stage)), std::string::npos) << outcome.out.substr(0, 200);
  }
  const Outcome core = run_tool({"show", mlp + "/model_core.pt2", "--summary"});
  EXPECT_EQ(core.code, 0);
  EXPECT_NE(core.err.find("decomposed (core) program"), std::string::npos) << core.err;
}

TEST(PytorchModel, Refusals) {
  const TemporaryDirectory directory;
  const std::string data = write_data(directory);
  const Arguments train = {"train", "--model", mlp + "/model.pt2", "--steps", "1", "--data", data};
  for (const auto& [more, message] : std::vector<std::pair<Arguments, std::string>>{
           {{}, "the batch has no array 'x' that the model reads; it has features, labels"},
           {{"--bind", "x=feature"}, "bind: the data has no 'feature'; nearest are features"},
           {{"--bind", "x"}, "--bind: found 'x', wanted INPUT=FIELD"},
           {{"--bind", "x=labels,target=features"}, "batch input"},
           {{"-o", "layers=2"}, "is a file and has only the option loss"}}) {
    const Outcome outcome = run_tool(train + more);
    EXPECT_EQ(outcome.code, 2) << message << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
  const Outcome shapes = run_tool({"train", "--model", mlp + "/model.pt2", "--steps", "1", "--data-kind", "digits", "--data", "data/digits.csv", "--bind", "x=image,target=label"});
  EXPECT_EQ(shapes.code, 2);
  EXPECT_NE(shapes.err.find("batch input x: found sizes [32, 1, 8, 8], the model wants f32[s48, 12]"), std::string::npos) << shapes.err;
  // A size out of the exported range: its name and range, and what it was.
  write_npz(directory / "many.npz", {{"x", Literal(DType::F32, {1200, 12})}, {"target", Literal(DType::I64, {1200})}});
  const Outcome many = run_tool({"train", "--model", mlp + "/model.pt2", "--steps", "1", "--data", directory / "many.npz", "--batch", "600"});
  EXPECT_EQ(many.code, 2);
  EXPECT_NE(many.err.find("size 's48' is 600, wanted 1 to 512"), std::string::npos) << many.err;
  write_text(directory / "broken.pt2", "PK");
  EXPECT_EQ(run_tool({"show", directory / "broken.pt2"}).code, 2);
}

}  // namespace check_test
}  // namespace stepgraph::testing
