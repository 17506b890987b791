// SPDX-License-Identifier: Apache-2.0
// What does not fit is told before the first step; what fails later does not lose the work; a resume names what differs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "stepgraph/train/checkpoint/checkpoint.h"
#include "stepgraph/train/data/arrays.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace fit_test {

const std::string fixed_model = source_file("tests/samples/cases/evaluation_mode/model.pt2");  // exported with 8 rows, without dynamic_shapes, in eval()

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Before the first step: nothing is on standard output.
std::string refused(const Arguments& arguments, const std::string& message) {
  const Outcome outcome = run_tool(Arguments{"train"} + arguments + Arguments{"--json"});
  EXPECT_EQ(outcome.code, 2) << message;
  EXPECT_EQ(outcome.out, "") << message;
  EXPECT_TRUE(holds(outcome.err, message)) << outcome.err << "\n  lacks: " << message;
  return outcome.err;
}

Literal spread(const Sizes& sizes) {
  Literal result(DType::F32, sizes);
  for (int64_t i = 0; i < result.count(); ++i) result.set(i, static_cast<double>((i * 37) % 17) / 8 - 1);
  return result;
}
Literal labels(int64_t count, int64_t classes) {
  Literal result(DType::I64, {count});
  for (int64_t i = 0; i < count; ++i) result.set_integer(i, (i * 5 + i / 3) % classes);
  return result;
}
std::string rows_file(const TemporaryDirectory& directory, const std::string& name, int64_t rows) {
  write_npz(directory / name, {{"x", spread({rows, 4})}, {"target", labels(rows, 3)}});
  return directory / name;
}
std::string image_file(const TemporaryDirectory& directory, const std::string& name, int64_t rows, int64_t classes) {
  write_npz(directory / name, {{"image", spread({rows, 1, 8, 8})}, {"label", labels(rows, classes)}});
  return directory / name;
}

TEST(FixedBatch, IsKnownBeforeTheFirstStep) {
  const TemporaryDirectory directory;
  const Arguments job = {"--model", fixed_model, "--data", rows_file(directory, "train.npz", 40), "--test-data", rows_file(directory, "test.npz", 20), "--epochs", "1"};
  refused(job, "batch: found 32, but the program was exported for batches of 8: use --batch 8, or export it with dynamic_shapes (docs/pt2.md)");
  const Arguments eight = job + Arguments{"--batch", "8"};
  refused(eight + Arguments{"--eval-batch", "5"}, "eval_batch: found 5, but the model takes batches of 8");
  refused(eight + Arguments{"--test-data", rows_file(directory, "few.npz", 7)}, "the test set has 7 samples, but the model takes batches of 8");
  refused(eight + Arguments{"--data", rows_file(directory, "odd.npz", 27), "--last-batch", "short"}, "the last batch of an epoch would have 3 rows, but the program was exported for batches of 8");
}

TEST(FixedBatch, EvaluationsLeaveOutTheRest) {
  const TemporaryDirectory directory;
  const Arguments job = {"--model", fixed_model, "--data", rows_file(directory, "train.npz", 27), "--batch", "8", "--epochs", "2", "--json"};
  const Outcome outcome = run_tool(Arguments{"train"} + job + Arguments{"--test-data", rows_file(directory, "test.npz", 20)});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string note = "evaluations leave out the last 4 of 20 test samples: the model takes batches of 8";
  EXPECT_EQ(outcome.err.find(note), outcome.err.rfind(note)) << "told once";
  EXPECT_TRUE(holds(outcome.err, note)) << outcome.err;
  const TrainingLines lines = read_training(outcome.out);
  EXPECT_EQ(lines.steps.size(), 6u);
  const Outcome whole = run_tool(Arguments{"train"} + job + Arguments{"--test-data", rows_file(directory, "sixteen.npz", 16)});
  EXPECT_FALSE(holds(whole.err, "leave out")) << whole.err;
  ASSERT_TRUE(lines.last && read_training(whole.out).last);
  EXPECT_EQ(lines.last->values.at("test_loss"), read_training(whole.out).last->values.at("test_loss"));
  const Outcome evaluated = run_tool(Arguments{"eval"} + job + Arguments{"--test-data", directory / "test.npz"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_EQ(read_json_lines(evaluated.out)[0].number("samples"), 16);
  EXPECT_TRUE(holds(evaluated.err, note)) << evaluated.err;
}

TEST(FixedBatch, AnExportInEvaluationModeIsToldOf) {
  const std::string told = "was exported in evaluation mode: batch norm is frozen and dropout is off in training too; call model.train() before the export";
  const TemporaryDirectory directory;
  EXPECT_TRUE(holds(run_tool({"show", fixed_model, "--summary"}).err, told));
  EXPECT_FALSE(holds(run_tool({"show", source_file("tests/samples/mlp_gelu/model.pt2"), "--summary"}).err, told));
  EXPECT_FALSE(holds(run_tool({"show", source_file("tests/samples/tiny_resnet/model.pt2"), "--summary"}).err, told));
}

TEST(PlainMeans, EvaluateAlikeAtEachBatchSize) {
  const TemporaryDirectory directory;
  write_npz(directory / "d.npz", {{"x", spread({40, 12})}, {"target", labels(40, 5)}});
  const Arguments job = {"eval", "--model", source_file("tests/samples/mlp_gelu/model.pt2"), "--data", directory / "d.npz", "--test-data", directory / "d.npz", "--json"};
  std::map<int, double> found;
  for (const int batch : {40, 17, 3}) {
    const Outcome outcome = run_tool(job + Arguments{"--eval-batch", std::to_string(batch)});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    found[batch] = read_json_lines(outcome.out)[0].number("test_loss");
    EXPECT_NEAR(found[batch], found.at(40), 1e-6) << batch;
  }
}

void damage(const std::string& file) { write_text(file, read_text(file).substr(0, 60)); }

TEST(Errors, AfterStepsLoseNoWork) {
  const TemporaryDirectory directory;
  const std::string photos = directory / "photos", run = directory / "run", weights = directory / "w.safetensors";
  std::filesystem::copy(source_file("tests/images/set"), photos, std::filesystem::copy_options::recursive);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(photos))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  const Arguments job = {"train", "--model", "convnet", "-o", "channels=3", "-o", "size=16", "-o", "classes=2", "-o", "width=4", "--crop", "16", "--data", photos, "--batch", "2",
                         "--test-every", "4", "--steps", "2", "--json"};
  const std::string image = read_text(files[0]);
  damage(files[0]);  // the first of four is a test image
  const Outcome lost = run_tool(job + Arguments{"--checkpoint", run, "--save-weights", weights});
  EXPECT_EQ(lost.code, 2) << lost.err;
  EXPECT_TRUE(holds(lost.err, "stepgraph: evaluation: " + files[0])) << lost.err;
  EXPECT_TRUE(holds(lost.err, "stopped by an error after 2 steps: the state is kept in " + run + ", the weights are kept in " + weights)) << lost.err;
  EXPECT_TRUE(std::filesystem::exists(run + "/step-00000002/manifest.json"));
  EXPECT_GT(read_safetensors(weights).arrays.size(), 4u);
  // Mended, the run goes on as one that was never stopped.
  write_text(files[0], image);
  const Arguments longer = job + Arguments{"--steps", "4"};
  const Outcome resumed = run_tool(longer + Arguments{"--checkpoint", run, "--resume"}), whole = run_tool(longer);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(read_training(resumed.out).steps.size(), 2u);
  EXPECT_EQ(read_training(resumed.out).last->values.at("test_loss"), read_training(whole.out).last->values.at("test_loss"));
}

TEST(Errors, OfAStepKeepTheBatchThatWasNotUsed) {
  const TemporaryDirectory directory;
  NamedArrays arrays = {{"x", spread({24, 12})}, {"target", labels(24, 5)}};
  write_npz(directory / "good.npz", arrays);
  arrays[1].second.set_integer(17, 77);  // in the third batch
  write_npz(directory / "bad.npz", arrays);
  const Arguments job = {"train", "--model", source_file("tests/samples/mlp_gelu/model.pt2"), "--test-data", directory / "good.npz", "--batch", "8", "--shuffle", "false", "--steps", "5",
                         "--json"};
  const Arguments kept = job + Arguments{"--checkpoint", directory / "run"};
  const Outcome lost = run_tool(kept + Arguments{"--data", directory / "bad.npz"});
  EXPECT_EQ(lost.code, 2);
  EXPECT_TRUE(holds(lost.err, "batch input target holds 77 in row 1: a label or token beyond the model's classes or vocabulary?")) << lost.err;
  const Arguments mended = kept + Arguments{"--data", directory / "good.npz", "--resume"};
  EXPECT_TRUE(holds(run_tool(mended).err, "was saved with other data, or another order of it: data.content: saved ")) << "a mended file is another one";
  const Outcome resumed = run_tool(mended + Arguments{"--other-data"}), whole = run_tool(job + Arguments{"--data", directory / "good.npz"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  const auto again = read_training(resumed.out).losses(), expected = read_training(whole.out).losses();
  EXPECT_EQ(again.size(), 3u);
  for (const auto& [step, loss] : again) EXPECT_EQ(loss, expected.at(step)) << step;
}

TEST(Resume, NamesWhatDiffers) {
  const TemporaryDirectory directory;
  const Arguments job = {"--model", "mlp", "-o", "hidden=8", "--data", image_file(directory, "d.npz", 40, 10), "--batch", "4", "--checkpoint", directory / "run"};
  const std::string weights = directory / "w.safetensors";
  ASSERT_EQ(run_tool(Arguments{"train"} + job + Arguments{"--steps", "3", "--save-weights", weights}).code, 0);
  const Arguments on = job + Arguments{"--steps", "3", "--resume"};
  const std::string other = refused(on + Arguments{"--lr", "0.01", "-o", "hidden=16", "--clip-norm", "1"}, "model.hidden: saved 8, now 16; optimizer.lr: saved 0.001, now 0.01; train.clip_norm: saved none, now 1; ");
  EXPECT_TRUE(holds(other, "was saved by the module '")) << other;
  EXPECT_TRUE(holds(other, "--weights FILE")) << other;
  EXPECT_FALSE(holds(other, "optimizer.name")) << other;
  refused({"--model", "convnet", "--data", directory / "d.npz", "--batch", "4", "--checkpoint", directory / "run", "--resume", "--steps", "4"}, "model.name: saved mlp, now convnet");
  const Outcome notes = run_tool(Arguments{"train"} + on + Arguments{"--batch", "8", "--weights", weights});
  ASSERT_EQ(notes.code, 0) << notes.err;
  for (const std::string note : {"the checkpoint was saved with batches of 4, this run has 8", "the state of the checkpoint counts, not --weights", "already at step 3 of --steps 3 (a total)"})
    EXPECT_TRUE(holds(notes.err, note)) << notes.err;
  const Outcome plain = run_tool(Arguments{"train"} + job + Arguments{"--steps", "4", "--resume"});
  EXPECT_FALSE(holds(plain.err, "already at") || holds(plain.err, "batches of") || holds(plain.err, "--weights")) << plain.err;
}

std::string rows_of_csv(int first, int count, int step) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const int row = (first + i * step) % count;
    text += std::to_string(row % 5) + "," + std::to_string(row % 3) + ".5," + std::to_string(row) + "," + std::to_string(row % 2) + "\n";
  }
  return text;
}

TEST(Resume, RefusesOtherDataAndAnotherOrder) {
  const TemporaryDirectory directory;
  write_text(directory / "d.csv", rows_of_csv(0, 25, 1));
  write_text(directory / "permuted.csv", rows_of_csv(3, 25, 2));
  write_text(directory / "copy.csv", rows_of_csv(0, 25, 1) + "\n\n");
  // 20 rows are for training.
  const Arguments job = {"--model",  "mlp",   "-o",     "hidden=4",          "-o",      "classes=2", "-o",           "size=1",         "-o", "channels=3",
                         "--sample", "3,1,1", "--data", directory / "d.csv", "--batch", "8",         "--checkpoint", directory / "run"};
  ASSERT_EQ(run_tool(Arguments{"train"} + job + Arguments{"--steps", "3"}).code, 0);
  const Arguments on = job + Arguments{"--steps", "5", "--resume"};
  const std::string other = "step-00000003: was saved with other data, or another order of it: ";
  EXPECT_TRUE(holds(refused(on + Arguments{"--scale", "100"}, other), "data.scale: saved 1, now 100"));
  EXPECT_TRUE(holds(refused(on + Arguments{"--test-rest", "1"}, other), "data.test_rest: saved 0, now 1"));
  EXPECT_TRUE(holds(refused(on + Arguments{"--last-batch", "pad"}, other), other + "train.last_batch: saved drop, now pad; "));
  EXPECT_TRUE(holds(refused(on + Arguments{"--last-batch", "short"}, other), "train.last_batch: saved drop, now short"));
  EXPECT_TRUE(holds(refused(on + Arguments{"--shuffle", "false"}, other), "train.shuffle: saved true, now false"));
  EXPECT_TRUE(holds(refused(on + Arguments{"--data", directory / "permuted.csv"}, other), other + "data.content: saved "));
  refused(job + Arguments{"--steps", "5", "--other-data"}, "--other-data: has no use without --resume");
  // Equal samples in another file are the same data.
  const Outcome copied = run_tool(Arguments{"train"} + on + Arguments{"--data", directory / "copy.csv", "--json"});
  EXPECT_EQ(copied.code, 0) << copied.err;
  EXPECT_EQ(read_training(copied.out).steps.size(), 2u);
}

TEST(Resume, RefusesOtherWindowsOfATextAndOtherImages) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + i * i % 26);
  write_text(directory / "t.txt", text);
  const Arguments gpt = {"--model",   "gpt", "-o",     "layers=1",          "-o",      "width=8", "-o",           "heads=2", "-o", "context=8",
                         "--context", "8",   "--data", directory / "t.txt", "--batch", "2",       "--eval-every", "-1"};
  const Arguments kept = gpt + Arguments{"--checkpoint", directory / "run"};
  ASSERT_EQ(run_tool(Arguments{"train"} + kept + Arguments{"--steps", "1"}).code, 0);
  const Arguments on = kept + Arguments{"--steps", "2", "--resume"};
  refused(on + Arguments{"--stride", "9"}, "data.stride: saved 0, now 9");
  refused(on + Arguments{"--held-out", "11"}, "data.held_out: saved 10, now 11");
  std::swap(text[5], text[6]);
  write_text(directory / "t.txt", text);
  refused(on, "other data, or another order of it: data.content: saved ");
  const std::string photos = directory / "photos";
  std::filesystem::copy(source_file("tests/images/set"), photos, std::filesystem::copy_options::recursive);
  const Arguments images = {"--model", "convnet", "-o",     "channels=3", "-o",      "size=16", "-o",           "classes=2",          "-o",           "width=4",
                            "--crop",  "16",      "--data", photos,       "--batch", "2",       "--checkpoint", directory / "images", "--eval-every", "-1"};
  ASSERT_EQ(run_tool(Arguments{"train"} + images + Arguments{"--steps", "1"}).code, 0);
  refused(images + Arguments{"--steps", "2", "--resume", "--flip"}, "data.flip: saved false, now true");
  EXPECT_EQ(run_tool(Arguments{"train"} + images + Arguments{"--steps", "2", "--resume"}).code, 0);
}

TEST(Evaluations, OfNothingHaveNoLoss) {
  const TemporaryDirectory directory;
  const Arguments job = {"--model", "mlp", "-o", "hidden=8", "--data", image_file(directory, "d.npz", 8, 10), "--batch", "4"};
  write_npz(directory / "none.npz", {{"image", Literal(DType::F32, {0, 1, 8, 8})}, {"label", Literal(DType::I64, {0})}});
  for (const Arguments& empty : {Arguments{"--test-data", directory / "none.npz"}, Arguments{"--held-out", "9"}}) {
    const Outcome trained = run_tool(Arguments{"train", "--steps", "2", "--json"} + job + empty);
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(read_training(trained.out).last->values.at("test_loss"), "null");
    EXPECT_EQ(read_training(trained.out).last->values.at("test_accuracy"), "null");
    EXPECT_TRUE(holds(run_tool(Arguments{"train", "--steps", "2"} + job + empty).out, "test    nothing evaluated\n"));
    ASSERT_EQ(run_tool(Arguments{"train", "--steps", "1", "--save-weights", directory / "w.st"} + job).code, 0);
    const Outcome evaluated = run_tool(Arguments{"eval", "--json", "--weights", directory / "w.st"} + job + empty);
    ASSERT_EQ(evaluated.code, 0) << evaluated.err;
    EXPECT_EQ(read_json_lines(evaluated.out)[0].values.at("test_loss"), "null");
    EXPECT_TRUE(holds(run_tool(Arguments{"eval", "--weights", directory / "w.st"} + job + empty).out, "0 test samples\nnothing evaluated\n"));
  }
}

TEST(Evaluations, ThatAreNotFiniteAreErrors) {
  const TemporaryDirectory directory;
  Arguments job = {"--model", "mlp", "-o", "hidden=8", "--data", image_file(directory, "d.npz", 40, 10), "--batch", "4", "--test-data", directory / "t.npz"};
  for (const double value : {NAN, INFINITY}) {
    NamedArrays test = {{"image", spread({11, 1, 8, 8})}, {"label", labels(11, 10)}};
    test[0].second.set(6 * 64 + 3, value);
    write_npz(directory / "t.npz", test);
    const std::string told =
        "which is not finite, first in the batch of test samples 4 to 7; sample 6 holds " + std::string(std::isnan(value) ? "nan" : "inf") + " in image";
    const Outcome trained =
        run_tool(Arguments{"train", "--steps", "2", "--json", "--checkpoint", directory / ("run" + std::to_string(std::isnan(value)))} + job);
    EXPECT_EQ(trained.code, 2) << trained.out;
    EXPECT_TRUE(holds(trained.err, "evaluation: the loss is ") && holds(trained.err, told)) << trained.err;
    EXPECT_TRUE(holds(trained.err, "the state is kept in ")) << trained.err;
    ASSERT_EQ(run_tool(Arguments{"train", "--steps", "1", "--eval-every", "-1", "--save-weights", directory / "w.st"} + job).code, 0);
    const Outcome evaluated = run_tool(Arguments{"eval", "--json", "--weights", directory / "w.st"} + job);
    EXPECT_EQ(evaluated.code, 2) << evaluated.out;
    EXPECT_EQ(evaluated.out, "");
    EXPECT_TRUE(holds(evaluated.err, told)) << evaluated.err;
  }
  write_text(directory / "d.csv", "a,b,c\n1,2,0\n3,nan,1\n");
  const Arguments csv = {"--model", "mlp", "--sample", "2,1,1", "-o", "size=1", "-o", "channels=2", "--batch", "1", "--steps", "1"};
  refused(csv + Arguments{"--data", directory / "d.csv"}, "d.csv: row 3, column 2: nan is not finite, wanted a number to train with");
  write_text(directory / "e.csv", "1,2,0\n3,1e300,1\n");
  refused(csv + Arguments{"--data", directory / "e.csv"}, "e.csv: row 2, column 2: 1e+300 does not fit f32");
}

TEST(Numbers, ThatDoNotFitAreNoInfinities) {
  const TemporaryDirectory directory;
  const Arguments job = {"--model", "mlp", "-o",      "hidden=8", "--data",       image_file(directory, "d.npz", 40, 10),
                         "--batch", "4",   "--steps", "1",        "--eval-every", "-1"};
  ASSERT_EQ(run_tool(Arguments{"train", "--save-weights", directory / "w.st"} + job).code, 0);
  Safetensors weights = read_safetensors(directory / "w.st");
  for (auto& [name, value] : weights.arrays) value = value.converted(DType::F64);
  weights.arrays[1].second.set(2, INFINITY);
  write_safetensors(directory / "wide.st", weights);
  EXPECT_FALSE(holds(run_tool(Arguments{"train", "--weights", directory / "wide.st"} + job).err, "does not fit")) << "an infinity is one in f32 too";
  weights.arrays[1].second.set(2, -1e39);
  write_safetensors(directory / "wide.st", weights);
  refused(job + Arguments{"--weights", directory / "wide.st"}, "weight " + weights.arrays[1].first + ": element 2 is -1e+39, which does not fit f32");
  NamedArrays wide = {{"image", spread({40, 1, 8, 8}).converted(DType::F64)}, {"label", labels(40, 10)}};
  for (int64_t i = 0; i < 40; ++i) wide[0].second.set(i * 64 + 7, 1e200);
  write_npz(directory / "wide.npz", wide);
  const Outcome outcome = run_tool(Arguments{"train", "--shuffle", "false"} + job + Arguments{"--data", directory / "wide.npz"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(holds(outcome.err, "batch input image: element 7 is 1e+200, which does not fit f32")) << outcome.err;
}

TEST(BatchNorm, WithOneValueAChannelIsRefused) {
  const TemporaryDirectory directory;
  write_npz(directory / "d.npz", {{"x", spread({9, 3})}, {"y", labels(9, 2)}});
  const Arguments job = {
      "--model", source_file("tests/samples/cases/batch_norm_rows/model.pt2"), "--data", directory / "d.npz", "--epochs", "1", "--eval-every", "-1"};
  const std::string told = "batch norm bn (record_cases.py:";
  EXPECT_TRUE(holds(refused(job + Arguments{"--batch", "1"}, told), "would see one value per channel, which has no variance to train with; wanted at least 2"));
  EXPECT_TRUE(holds(refused(job + Arguments{"--batch", "4", "--micro-batches", "4"}, told), "in --batch 4 with 4 micro-batches, 1 row each"));
  EXPECT_TRUE(holds(refused(job + Arguments{"--batch", "4", "--last-batch", "short", "--held-out", "100"}, told),
                    "in the last batch of an epoch, of 1 row: use --last-batch drop or pad"));
  EXPECT_EQ(run_tool(Arguments{"train"} + job + Arguments{"--batch", "2", "--mesh", "data=2"}).code, 0) << "two ranks of one row see two values";
  EXPECT_EQ(run_tool(Arguments{"train"} + job + Arguments{"--batch", "4", "--held-out", "100"}).code, 0);
  const Arguments eval = {"eval", "--model", job[1], "--data", directory / "d.npz", "--held-out", "9"};
  EXPECT_EQ(run_tool(eval).code, 0) << "an evaluation of one row has running statistics";
}

TEST(Resume, CheckpointsWithoutOptionsAreRefusedWithoutNames) {
  const TemporaryDirectory directory;
  CheckpointData data;
  data.step = 1;
  data.module_hash = "0123456789abcdef0123456789abcdef";
  save_checkpoint(*posix_disk(), directory / "run", data);
  refused({"--model", "mlp", "--data", image_file(directory, "d.npz", 40, 10), "--batch", "4", "--steps", "3", "--checkpoint", directory / "run", "--resume"},
          "was saved by the module '0123456789abcdef0123456789abcdef', this run has ");
}

TEST(Resume, AtTheEndOfTheEpochsIsToldOf) {
  const TemporaryDirectory directory;
  const Arguments job = {"train", "--model", "mlp", "-o", "hidden=8", "--data", image_file(directory, "d.npz", 40, 10), "--batch", "4", "--checkpoint", directory / "run", "--epochs", "1"};
  ASSERT_EQ(run_tool(job).code, 0);
  const Outcome again = run_tool(job + Arguments{"--resume"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(holds(again.err, "already at step 9, the end of --epochs 1 (a total)")) << again.err;
  EXPECT_FALSE(holds(run_tool(job + Arguments{"--resume", "--epochs", "2"}).err, "already at"));
}

TEST(Messages, OfDataThatDoesNotFitTheModel) {
  const TemporaryDirectory directory;
  const Arguments steps = {"--steps", "1", "--batch", "4"};
  const Arguments mlp = Arguments{"--model", "mlp", "--data", image_file(directory, "d.npz", 40, 13)} + steps;
  refused(mlp, "batch input label: the data has the value 12, the model takes 0 to 9 (classes 10); -o classes=13 makes room");
  refused(mlp + Arguments{"-o", "size=4", "-o", "classes=13"}, "batch input image: found sizes [4, 1, 8, 8], the model wants f32[batch, 1, 4, 4]");
  const Arguments photos = Arguments{"--model", "convnet", "-o", "channels=3", "-o", "size=16", "--data", source_file("tests/images/set")} + steps;
  refused(photos, "the model wants f32[batch, 3, 16, 16]; --crop sets the size of images");
  refused(photos + Arguments{"--crop", "16", "-o", "classes=1"}, "the data has the value 1, the model takes 0 to 0 (classes 1); -o classes=2 makes room");
  const Outcome larger = run_tool(Arguments{"train"} + photos + Arguments{"--crop", "16", "--json"});
  EXPECT_TRUE(holds(larger.err, "the images are of 2 classes, the model has 10")) << larger.err;
  write_text(directory / "t.txt", std::string(1000, 'a') + "~");
  const Arguments text = Arguments{"--data", directory / "t.txt"} + steps, gpt = Arguments{"--model", "gpt", "-o", "context=16"} + text;
  refused(gpt, "batch input tokens: found sizes [4, 64], the model wants i32[batch, 16]; --context sets the length of the data's windows, -o context=N the model's");
  refused(gpt + Arguments{"--context", "8", "-o", "context=8", "-o", "vocabulary=100"}, "batch input tokens: the data has the value 126, the model takes 0 to 99 (vocabulary 100); -o vocabulary=127 makes room");
  write_npz(directory / "names.npz", {{"images", spread({40, 1, 8, 8})}, {"label", labels(40, 10)}});
  refused(mlp + Arguments{"--data", directory / "names.npz"}, "the batch has no array 'image' that the model reads; it has images, label; give it a field of another name with --bind, e.g. --bind image=images");
  write_text(directory / "none.txt", "");
  refused(gpt + Arguments{"--data", directory / "none.txt"}, "none.txt: is empty, wanted tokens");
  refused(mlp + Arguments{"--data", directory / "nowhere"}, "nowhere: no such file or folder");
  refused(Arguments{"--model", "moe", "-o", "width=12"} + text, "moe: width 12 is no multiple of twice 4 heads");
}

TEST(Messages, OfFilesThatAreNoModelAndNoWeights) {
  const TemporaryDirectory directory;
  const Arguments rest = {"--data", image_file(directory, "d.npz", 40, 10), "--steps", "1", "--batch", "4"}, mlp = Arguments{"--model", "mlp", "-o", "hidden=8"} + rest;
  refused(Arguments{"--model", "init.pt"} + rest, "model init.pt: looks like a file of torch.save");
  refused(Arguments{"--model", "w.safetensors"} + rest, "give the file with --weights");
  for (const std::string& magic : {std::string("PK\x03\x04"), std::string("\x80\x02}q")}) {
    write_text(directory / "torch.st", magic + std::string(60, '.'));
    refused(mlp + Arguments{"--weights", directory / "torch.st"}, "torch.st: is not safetensors: looks like a file of torch.save; save the state_dict with safetensors.torch.save_file");
  }
  const std::string saved = directory / "w.safetensors";
  ASSERT_EQ(run_tool(Arguments{"train"} + mlp + Arguments{"--save-weights", saved}).code, 0);
  Safetensors inside;
  for (const auto& [name, value] : read_safetensors(saved).arrays) inside.arrays.emplace_back("net." + name, value);
  write_safetensors(directory / "inside.safetensors", inside);
  refused(mlp + Arguments{"--weights", directory / "inside.safetensors"}, "the file's names are the model's with 'net.' before them");
  // GPT-2 in both layouts.
  write_text(directory / "t.txt", std::string(400, 'a'));
  const Arguments gpt = {"--model", "gpt", "-o", "layers=1", "-o", "width=8", "-o", "heads=2", "-o", "context=8", "--context", "8", "--data", directory / "t.txt", "--steps", "1", "--batch", "2"};
  ASSERT_EQ(run_tool(Arguments{"train"} + gpt + Arguments{"-o", "conv1d=true", "--save-weights", saved}).code, 0);
  refused(gpt + Arguments{"--weights", saved}, "the other way round: the model gpt takes both ways, -o conv1d=true");
}

}  // namespace fit_test
}  // namespace stepgraph::testing
