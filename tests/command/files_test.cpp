// SPDX-License-Identifier: Apache-2.0
// Files that are written when there is no room, files that are none, and messages that name the file at fault.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "stepgraph/train/data/arrays.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace files_test {

const std::string square = source_file("examples/square.sg");

void expect_refused(const Arguments& arguments, const std::string& message) {
  const Outcome outcome = run_tool(arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.out << outcome.err;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

TEST(ResultFiles, AreWholeOrAsTheyWere) {
  const TemporaryDirectory directory;
  write_text(directory / "old.npz", "old");
  const Outcome outcome = run_shell("ulimit -f 0; exec 2>&1; $STEPGRAPH run " + square + " --set x=[1,2,3] --save old.npz | cat > /dev/null; test \"$(cat old.npz)\" = old && test $(ls -A | wc -l) = 1",
                                    directory.path());
  EXPECT_EQ(outcome.code, 0) << "another file is left, or the older one is damaged";
  EXPECT_EQ(read_text(directory / "old.npz"), "old");
  // A limit is an error, not the end by a signal.
  const Outcome limited = run_shell("(ulimit -f 0; $STEPGRAPH run " + square + " --set x=[1,2,3] --save new.npz 2>&1; echo code $?) | cat", directory.path());
  EXPECT_NE(limited.out.find("cannot write new.npz: File too large\ncode 3"), std::string::npos) << limited.out;
  EXPECT_FALSE(std::filesystem::exists(directory / "new.npz"));
  expect_refused({"train", "--model", "mlp", "--data-kind", "digits", "--data", "data/digits.csv", "--batch", "16", "--steps", "1", "--save-weights", directory.path()}, "Is a directory");
}

TEST(SpecialFiles, AreNoData) {
  const TemporaryDirectory directory;
  for (const std::string name : {"p.npz", "p.safetensors", "p.pt2", "p.csv"}) ASSERT_EQ(::mkfifo((directory / name).c_str(), 0600), 0);
  const Arguments digits = {"--data-kind", "digits", "--data", source_file("data/digits.csv"), "--batch", "16", "--steps", "1"};
  expect_refused({"train", "--model", "mlp", "--data", directory / "p.npz", "--steps", "1"}, "p.npz: is not a regular file");
  expect_refused({"train", "--model", "mlp", "--data", directory / "p.csv", "--sample", "1,8,8", "--steps", "1"}, "p.csv: is not a regular file");
  expect_refused(Arguments{"train", "--model", "mlp", "--weights", directory / "p.safetensors"} + digits, "p.safetensors: is not a regular file");
  expect_refused(Arguments{"train", "--model", directory / "p.pt2"} + digits, "p.pt2: is no ordinary file");
  expect_refused({"train", "--model", "gpt", "--data-kind", "text", "--data", "/dev/zero", "--steps", "1"}, "/dev/zero: is not a regular file");
  expect_refused({"run", square, "--set", "x=@/dev/zero"}, "/dev/zero: is not a regular file");
  expect_refused({"run", "/dev/zero", "--set", "x=1"}, "larger than the limit");
  const Outcome piped = run_shell("cat " + square + " | $STEPGRAPH run /dev/stdin --set x=[1,2,3]");
  EXPECT_EQ(piped.code, 0) << piped.err;
  for (const char* split : {"a", "b"}) {
    const std::string folder = directory / "images/" + split;
    std::filesystem::create_directories(folder);
    ASSERT_EQ(::mkfifo((folder + "/x.png").c_str(), 0600), 0);
  }
  const Arguments images = {"--data", directory / "images", "--crop", "8", "--batch", "1", "--steps", "1", "--test-every", "2"};
  expect_refused(Arguments{"train", "--model", "mlp", "-o", "channels=3", "-o", "classes=2"} + images, "x.png: is not a regular file");
}

TEST(FileMessages, NameWhatIsAtFault) {
  const TemporaryDirectory directory;
  write_npz(directory / "none.npz", {{"image", Literal(DType::F32, {0, 1, 8, 8})}, {"label", Literal(DType::I64, {0})}});
  expect_refused({"train", "--model", "mlp", "--data", directory / "none.npz", "--steps", "1"}, "none.npz: no sample is left to train on: found 0 in all");
  const Arguments bound = {"--model", "mlp", "--data-kind", "digits", "--data", source_file("data/digits.csv"), "--batch", "16", "--bind", "zz=label"};
  expect_refused(Arguments{"train", "--steps", "1"} + bound, "the model has no input 'zz'; it has image, label");
  const std::string copy = "cp -r " + source_file("tests/samples/mlp_gelu") + " . && chmod -R u+w mlp_gelu && cp " + source_file("tests/samples/manifest.json") + " . && ";
  write_safetensors(directory / "other.safetensors", {{{"x", Literal(DType::F32, {1})}}, {}});
  const Outcome missing = run_shell(copy + "cp other.safetensors mlp_gelu/data.safetensors && $STEPGRAPH check mlp_gelu", directory.path());
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.err.find("mlp_gelu/data.safetensors: "), std::string::npos) << missing.err;
  const Outcome optimizer = run_shell(copy + "sed -i 's/\"lr\": [0-9.e-]*/\"lr\": -1/' manifest.json && $STEPGRAPH check mlp_gelu", directory.path());
  EXPECT_EQ(optimizer.code, 2);
  EXPECT_NE(optimizer.err.find("manifest.json: mlp_gelu: "), std::string::npos) << optimizer.err;
}

}  // namespace files_test
}  // namespace stepgraph::testing
