// SPDX-License-Identifier: Apache-2.0
// stepgraph train: what it prints, what it leaves behind, and that it goes on exactly where it was stopped.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "stepgraph/compile/codegen/emit_form.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace train_test {

/// Batch norm, dropout, accumulation and clipping: all that a step may carry from one to the next.
const Arguments convnet = {"train",
                           "--model",
                           "convnet",
                           "-o",
                           "width=4",
                           "-o",
                           "dropout=0.2",
                           "--data-kind",
                           "digits",
                           "--data",
                           source_file("data/digits.csv"),
                           "--batch",
                           "24",
                           "--micro-batches",
                           "2",
                           "--clip-norm",
                           "1",
                           "--schedule",
                           "cosine",
                           "--warmup",
                           "5",
                           "--schedule-total",
                           "60",
                           "--lr",
                           "1e-2",
                           "--seed",
                           "7",
                           "--json",
                           "--eval-every",
                           "-1"};
const Arguments gpt = {"train",
                       "--model",
                       "gpt",
                       "-o",
                       "layers=1",
                       "-o",
                       "width=16",
                       "-o",
                       "heads=2",
                       "-o",
                       "context=16",
                       "-o",
                       "dropout=0.1",
                       "--data-kind",
                       "text",
                       "--data",
                       source_file("data/austen.txt"),
                       "--context",
                       "16",
                       "--batch",
                       "6",
                       "--seed",
                       "3",
                       "--json",
                       "--eval-every",
                       "-1"};

Arguments steps(int count) { return {"--steps", std::to_string(count)}; }
Arguments checkpoint(const std::string& directory) { return {"--checkpoint", directory}; }

TrainingLines train(const Arguments& arguments) {
  const Outcome outcome = run_tool(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return read_training(outcome.out);
}

/// Those of `whole` from a step on.
std::map<int, std::string> from_step(std::map<int, std::string> whole, int step) {
  whole.erase(whole.begin(), whole.lower_bound(step));
  return whole;
}

TEST(Train, JsonHasTheStableNames) {
  const Outcome outcome = run_tool({"train", "--config", source_file("examples/digits.toml"), "--mesh", "data=2", "--json", "--steps", "3"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const TrainingLines lines = read_training(outcome.out);
  ASSERT_EQ(lines.steps.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(lines.steps[i].number("step"), i);
    EXPECT_GT(lines.steps[i].number("loss"), 0);
    EXPECT_GT(lines.steps[i].number("lr"), 0);
    EXPECT_GT(lines.steps[i].number("samples_per_s"), 0);
  }
  ASSERT_TRUE(lines.last);
  EXPECT_GE(lines.last->number("test_accuracy"), 0);
  EXPECT_LE(lines.last->number("test_accuracy"), 1);
  EXPECT_GT(lines.last->number("step_ms"), 0);
  EXPECT_EQ(lines.last->number("ranks"), 2);
  EXPECT_GT(lines.last->number("peak_bytes"), 10000);
  if (has_code_generation()) {
    EXPECT_GT(lines.last->number("compile_seconds"), 0);
    EXPECT_GT(lines.last->number("rss_before_state_bytes"), 1e6);
    EXPECT_GE(lines.last->number("rss_peak_bytes"), lines.last->number("rss_before_state_bytes"));
  }
}

TEST(Train, AMetricMayBeCalledAsAKeyOfALine) {
  const TemporaryDirectory folder;
  std::string model = run_tool({"show", "mlp"}).out;
  for (size_t at = 0; (at = model.find("\"accuracy\"", at)) != std::string::npos;) model.replace(at, 10, "\"epoch\"");
  write_text(folder / "model.sg", model);
  const Arguments digits = {"--data-kind", "digits", "--data", source_file("data/digits.csv"), "--eval-every", "-1", "--json"};
  const TrainingLines lines = train(Arguments{"train", "--model", folder / "model.sg"} + digits + steps(2));
  ASSERT_EQ(lines.steps.size(), 2u);
  EXPECT_EQ(lines.steps[1].number("epoch"), 0);
  EXPECT_GT(lines.steps[1].number("metric.epoch"), 0);
}

TEST(Train, NoEvaluationGivesNull) {
  const TrainingLines lines = train(gpt + steps(1));
  ASSERT_TRUE(lines.last);
  EXPECT_EQ(lines.last->values.at("test_accuracy"), "null");
}

TEST(Train, FiftyStepsTwiceAreEqual) {
  for (const Arguments& job : {convnet, gpt}) {
    const auto once = train(job + steps(50)).losses();
    EXPECT_EQ(once.size(), 50u);
    EXPECT_EQ(once, train(job + steps(50)).losses());
  }
}

TEST(Train, ARecordOfTuningIsWrittenAndReplayed) {
  const TemporaryDirectory directory;
  const std::string record = directory / "cpu.tuning";
  const Arguments job = gpt + steps(3) + Arguments{"--backend", "full", "--threads", "2"};
  if (run_tool(job).code != 0) GTEST_SKIP() << "a build without code generation";
  const auto tuned = train(job + Arguments{"--tune", "1.5s", "--tuning", record}).losses();
  const std::string written = read_text(record);
  EXPECT_EQ(written.rfind("stepgraph_tuning 1\nmeasured_with \"onednn ", 0), 0U) << written;
  EXPECT_NE(written.find("matmul f32 batch 1 m 96 "), std::string::npos) << written;
  for (const char* seconds : {"0", "10"}) {
    EXPECT_EQ(train(job + Arguments{"--tune", seconds, "--tuning", record}).losses(), tuned) << "the bits are those of the record";
    EXPECT_EQ(read_text(record), written) << "what has a record is not measured again";
  }
  const Outcome missing = run_tool(job + Arguments{"--tuning", directory / "none"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.err.find("cannot open"), std::string::npos) << missing.err;
  write_text(record, "stepgraph_tuning 1\nmatmul");
  const Outcome broken = run_tool(job + Arguments{"--tuning", record});
  EXPECT_EQ(broken.code, 2);
  EXPECT_NE(broken.err.find(record + ":2:1: found 'matmul', wanted 'measured_with'"), std::string::npos) << broken.err;
  const Outcome unused = run_tool(gpt + steps(1) + Arguments{"--backend", "reference", "--tuning", record});
  EXPECT_NE(unused.err.find("--tuning: has no use beside a reference back end"), std::string::npos) << unused.err;
  const Outcome worded = run_tool(job + Arguments{"--tune", "long"});
  EXPECT_NE(worded.err.find("--tune: found 'long', wanted a number"), std::string::npos) << worded.err;
}

TEST(Train, AnotherSeedGivesOtherLosses) { EXPECT_NE(train(gpt + steps(2)).losses(), train(gpt + steps(2) + Arguments{"--seed", "4"}).losses()); }

TEST(Train, MeshesAgreeWithOneRank) {
  for (const Arguments& job : {convnet, gpt}) {
    const TrainingLines one = train(job + steps(4));
    for (const char* mesh : {"data=2", "data=3", "data=4"}) {
      const TrainingLines many = train(job + steps(4) + Arguments{"--mesh", mesh});
      ASSERT_EQ(many.steps.size(), one.steps.size());
      for (size_t i = 0; i < one.steps.size(); ++i) EXPECT_NEAR(many.steps[i].number("loss") / one.steps[i].number("loss"), 1, 1e-6) << mesh << " step " << i;
    }
  }
}

TEST(Train, ResumesAtAnyStep) {
  for (const Arguments& job : {convnet, gpt}) {
    const auto whole = train(job + steps(64)).losses();
    // 59 batches are an epoch of the digits: 59 is its last moment, 60 the next one's first step.
    for (const int stop : {1, 7, 30, 59, 60}) {
      const TemporaryDirectory directory;
      const Arguments kept = job + checkpoint(directory / "run");
      train(kept + steps(stop));
      const TrainingLines rest = train(kept + steps(64) + Arguments{"--resume"});
      EXPECT_EQ(rest.losses(), from_step(whole, stop)) << "stopped after " << stop;
    }
  }
}

TEST(Train, ResumesOnAnotherMesh) {
  const TemporaryDirectory directory;
  const Arguments kept = gpt + checkpoint(directory / "run");
  train(kept + steps(3) + Arguments{"--mesh", "data=2"});
  const TrainingLines rest = train(kept + steps(5) + Arguments{"--mesh", "data=3", "--resume"});
  const TrainingLines whole = train(gpt + steps(5));
  ASSERT_EQ(rest.steps.size(), 2u);
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(rest.steps[i].number("loss"), whole.steps[3 + i].number("loss"), 1e-4);
}

TEST(Train, ResumesAfterKillAtARandomMoment) {
  const auto whole = train(convnet + steps(60)).losses();
  const auto seed = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE("seed " + std::to_string(seed));
  unsigned random = seed;
  for (int round = 0; round < 4; ++round) {
    random = random * 1664525u + 1013904223u;
    const TemporaryDirectory directory;
    const Arguments kept = convnet + checkpoint(directory / "run") + steps(60) + Arguments{"--save-every", "2", "--keep", "2", "--resume"};
    Running first(kept);
    first.wait_for_lines(static_cast<int>(random >> 16) % 50);
    std::this_thread::sleep_for(std::chrono::microseconds(random >> 8 & 8191));
    first.send(SIGKILL);
    const auto before = read_training(first.finish().out).losses();
    const auto after = train(kept).losses();
    for (const auto& [step, loss] : before) EXPECT_EQ(loss, whole.at(step)) << step;
    ASSERT_FALSE(after.empty());
    EXPECT_LE(after.begin()->first, static_cast<int>(before.size()));  // nothing is skipped
    EXPECT_EQ(after, from_step(whole, after.begin()->first));
  }
}

TEST(Train, SignalsSaveAndEndInOrder) {
  const auto whole = train(gpt + steps(400)).losses();
  for (const int signal : {SIGTERM, SIGINT}) {
    const TemporaryDirectory directory;
    const Arguments kept = gpt + checkpoint(directory / "run") + steps(400);
    Running first(kept);
    first.wait_for_lines(5);
    first.send(signal);
    const Outcome outcome = first.finish();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const TrainingLines before = read_training(outcome.out);
    ASSERT_TRUE(before.last);
    EXPECT_EQ(before.last->values.at("interrupted"), "true");
    const int done = static_cast<int>(before.steps.size());
    ASSERT_LT(done, 400);
    EXPECT_NE(outcome.err.find("saved"), std::string::npos) << outcome.err;
    EXPECT_EQ(train(kept + Arguments{"--resume"}).losses(), from_step(whole, done));
  }
}

TEST(Train, ASignalEndsALongEvaluation) {
  Running run({"train", "--config", source_file("examples/gpt.toml"), "--steps", "1", "--json"});
  run.wait_for_lines(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  run.send(SIGTERM);
  const Outcome outcome = run.finish();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const TrainingLines lines = read_training(outcome.out);
  ASSERT_TRUE(lines.last);
  EXPECT_EQ(lines.last->values.at("interrupted"), "true");
  EXPECT_EQ(lines.last->values.at("test_loss"), "null");
}

TEST(Train, DamagedCheckpointFallsBack) {
  const TemporaryDirectory directory;
  const Arguments kept = gpt + checkpoint(directory / "run");
  train(kept + steps(6) + Arguments{"--save-every", "2"});
  const std::string file = directory / "run/step-00000006/state.safetensors";
  std::string bytes = read_text(file);
  ASSERT_GT(bytes.size(), 1000u);
  bytes[bytes.size() / 2] ^= 1;
  write_text(file, bytes);
  const Outcome outcome = run_tool(kept + steps(8) + Arguments{"--resume"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("step-00000006/state.safetensors"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("resumed from"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_training(outcome.out).losses(), from_step(train(gpt + steps(8)).losses(), 4));
}

TEST(Train, ForeignCheckpointIsRefused) {
  const TemporaryDirectory directory;
  train(gpt + checkpoint(directory / "run") + steps(1));
  const std::vector<std::pair<Arguments, std::string>> others = {{convnet, "was saved by the module"},
                                                                 {gpt + Arguments{"--lr", "0.5"}, "was saved by the module"},
                                                                 {gpt + Arguments{"--seed", "4"}, "was saved with seed 3"},
                                                                 {gpt + Arguments{"--held-out", "3"}, "data.held_out: saved 10, now 3"},
                                                                 {gpt + Arguments{"--shuffle", "false"}, "train.shuffle: saved true, now false"}};
  for (const auto& [job, message] : others) {
    const Outcome outcome = run_tool(job + checkpoint(directory / "run") + steps(3) + Arguments{"--resume"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("step-00000001"), std::string::npos) << outcome.err;
  }
}

TEST(Train, ResumeWithoutACheckpointStartsAnew) {
  const TemporaryDirectory directory;
  const Outcome outcome = run_tool(gpt + checkpoint(directory / "new") + steps(2) + Arguments{"--resume"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("starting from step 0"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_training(outcome.out).losses(), train(gpt + steps(2)).losses());
}

TEST(Train, ResumeOfAFinishedRunTrainsNoMore) {
  const TemporaryDirectory directory;
  const Arguments kept = gpt + checkpoint(directory / "run") + steps(3);
  train(kept);
  const TrainingLines again = train(kept + Arguments{"--resume"});
  EXPECT_TRUE(again.steps.empty());
  ASSERT_TRUE(again.last);
  EXPECT_EQ(again.last->number("steps"), 3);
}

TEST(Train, NonFiniteLossNamesStepAndOperator) {
  const Outcome outcome = run_tool(
      {"train", "--config", source_file("examples/digits.toml"), "--optimizer", "sgd", "--lr", "1e30", "--schedule", "constant", "--steps", "9", "--json"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("step 1: the loss is not finite; first value that is not finite: moments gives inf"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_training(outcome.out).steps.size(), 1u);
}

TEST(Train, DisksThatFailAreTheMachinesFault) {
  Start full;
  full.out = "/dev/full";
  const Outcome outcome = run_tool(gpt + steps(2), full);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err, "stepgraph: cannot write to standard output: No space left on device\n");

  const TemporaryDirectory directory;
  write_text(directory / "file", "");
  const Outcome unwritable = run_tool(gpt + steps(2) + checkpoint(directory / "file/run"));
  EXPECT_EQ(unwritable.code, 3);
  EXPECT_NE(unwritable.err.find("file/run: Not a directory"), std::string::npos) << unwritable.err;
  EXPECT_EQ(unwritable.out, "");  // known before the first step
}

TEST(Train, UnwritableCurveIsKnownBeforeTheFirstStep) {
  const Outcome outcome = run_tool(gpt + steps(2) + Arguments{"--curve", "/no/such/place.svg"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("cannot open /no/such/place.svg for writing"), std::string::npos) << outcome.err;
}

TEST(Train, LeavesACurve) {
  const TemporaryDirectory directory;
  train(gpt + steps(30) + checkpoint(directory / "run"));
  const std::string svg = read_text(directory / "run/loss.svg");
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("gpt on austen.txt"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  size_t points = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++points;
  EXPECT_EQ(points, 30u);
}

/// Without --json: for people.
Arguments plain(Arguments arguments) {
  arguments.erase(std::find(arguments.begin(), arguments.end(), "--json"));
  return arguments;
}

TEST(Train, SaysWhatWasBuiltAndDone) {
  const Outcome outcome = run_tool(plain(convnet) + steps(2) + Arguments{"--mesh", "data=2", "--eval-every", "0"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part :
       {"module  convnet · ", "parameters in 11 tensors", "x 2 micro-batches", "mesh    data=2 (2 ranks as threads) · a step sends: all_reduce",
        "1,437 training and 360 test samples", "done     2 steps", "test    loss "})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " in\n" << outcome.out;
  EXPECT_NE(outcome.err.find("step  2/2  loss "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("samples/s  ETA 0:00"), std::string::npos) << outcome.err;
}

TEST(Train, DrawsABarOnATerminal) {
  for (const int columns : {200, 80, 40, 20, 9, 2}) {
    Start terminal;
    terminal.terminal_columns = columns;
    const Outcome outcome = run_tool(plain(convnet) + steps(30), terminal);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("step  30/30 ━━━") != std::string::npos, columns >= 40) << outcome.err;
    EXPECT_EQ(outcome.err.find("100 %") != std::string::npos, columns >= 40);
    EXPECT_EQ(outcome.err.find("samples/s") != std::string::npos, columns >= 80);
    // Redrawn in place: a line never wraps.
    size_t start = 0;
    for (size_t end; (end = outcome.err.find('\r', start)) != std::string::npos; start = end + 1) {
      std::string line = outcome.err.substr(start, end - start);
      if (const size_t escape = line.find("\033[K"); escape != std::string::npos) line.erase(escape, 3);
      const auto continuation = std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; });
      EXPECT_LT(std::ssize(line) - continuation, columns) << line;
    }
  }
}

TEST(Train, AnErrorDoesNotStandOnTheBarsLine) {
  Start terminal;
  terminal.terminal_columns = 100;
  const Outcome outcome = run_tool(
      {"train", "--config", source_file("examples/digits.toml"), "--optimizer", "sgd", "--lr", "1e30", "--schedule", "constant", "--steps", "9"}, terminal);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("\nstepgraph: step 1: the loss is not finite"), std::string::npos) << outcome.err;
}

}  // namespace train_test
}  // namespace stepgraph::testing
