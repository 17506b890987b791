// SPDX-License-Identifier: Apache-2.0
// What was trained is kept when a pipe is closed or a disk is full; one process at a time writes to a folder of checkpoints; names that no file can hold.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "stepgraph/base/disk.h"
#include "stepgraph/base/file.h"
#include "stepgraph/train/data/arrays.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace kept_work_test {

const Arguments mlp = {"train",   "--model", "mlp",          "-o", "hidden=32", "--data-kind", "digits", "--data", source_file("data/digits.csv"),
                       "--batch", "16",      "--eval-every", "-1"};

std::string line_of(const Arguments& arguments) {
  std::string line = "$STEPGRAPH";
  for (const std::string& word : arguments) line += " " + word;
  return line;
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::vector<std::string> names_in(const std::string& folder) { return posix_disk()->list(folder); }

TEST(StandardOutput, ThatCannotBeWrittenLosesNoWork) {
  const TemporaryDirectory directory;
  const Arguments kept = {"--checkpoint", "c", "--save-weights", "w.safetensors"};
  const Arguments json = mlp + Arguments{"--json", "--steps", "3000"} + kept;
  const Outcome piped = run_shell("(" + line_of(json) + " 2> err; echo $? > code) | head -20 > /dev/null", directory.path());
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(read_text(directory / "code"), "3\n") << read_text(directory / "err");
  EXPECT_TRUE(holds(read_text(directory / "err"), "cannot write to standard output: Broken pipe")) << read_text(directory / "err");
  EXPECT_TRUE(holds(read_text(directory / "err"), "the state is kept in c, the weights are kept in w.safetensors")) << read_text(directory / "err");
  EXPECT_GT(read_safetensors(directory / "w.safetensors").arrays.size(), 2u);
  EXPECT_EQ(names_in(directory / "c").size(), 2u) << "latest and one checkpoint, no lock";
  // The same to a full disk, and as text, which is not written while steps are made.
  Start full{directory.path(), "/dev/full", 0};
  const Outcome on_full = run_tool(mlp + Arguments{"--json", "--steps", "5", "--checkpoint", "d", "--save-weights", "x.safetensors"}, full);
  EXPECT_EQ(on_full.code, 3) << on_full.err;
  EXPECT_TRUE(holds(on_full.err, "cannot write to standard output: No space left on device")) << on_full.err;
  EXPECT_TRUE(std::filesystem::exists(directory / "x.safetensors") && std::filesystem::exists(directory / "d/step-00000001/manifest.json"));
  const Outcome text = run_tool(mlp + Arguments{"--steps", "5", "--checkpoint", "e", "--save-weights", "y.safetensors"}, full);
  EXPECT_EQ(text.code, 3) << text.err;
  EXPECT_TRUE(std::filesystem::exists(directory / "y.safetensors") && std::filesystem::exists(directory / "e/step-00000005/manifest.json"));
  const Outcome pipe_of_text =
      run_shell("(" + line_of(mlp + Arguments{"--steps", "300", "--checkpoint", "f"}) + " 2> err; echo $? > code) | head -1 > /dev/null", directory.path());
  EXPECT_EQ(read_text(directory / "code"), "3\n") << pipe_of_text.err;
  EXPECT_TRUE(std::filesystem::exists(directory / "f/step-00000300/manifest.json"));
}

TEST(FullDisks, OfCheckpointsLeaveTheWeights) {
  const TemporaryDirectory directory;
  ASSERT_EQ(run_tool(mlp + Arguments{"--steps", "1", "--checkpoint", "c", "--save-weights", "w.safetensors"}, {directory.path(), "", 0}).code, 0);
  const auto weights = std::filesystem::file_size(directory / "w.safetensors"),
             state = std::filesystem::file_size(directory / "c/step-00000001/state.safetensors");
  ASSERT_GT(state, 2 * weights);
  // A limit between the two stands for a disk that has room for one of them.
  const std::string limit = std::to_string((weights + state) / 2 / 512);
  for (const std::string every : {"0", "2"}) {
    const std::string job =
        line_of(mlp + Arguments{"--steps", "4", "--save-every", every, "--checkpoint", "d" + every, "--save-weights", "v" + every + ".safetensors"});
    const Outcome outcome = run_shell("(ulimit -f " + limit + "; " + job + "; echo code $?) 2>&1 | cat", directory.path());
    EXPECT_TRUE(holds(outcome.out, "the state could not be kept: ") && holds(outcome.out, "the weights are kept in v" + every)) << outcome.out;
    EXPECT_TRUE(holds(outcome.out, "File too large") && holds(outcome.out, "code 3")) << outcome.out;
    EXPECT_EQ(std::filesystem::file_size(directory / ("v" + every + ".safetensors")), weights);
  }
}

TEST(Lock, OfAFolderIsHeldByOneProcess) {
  const TemporaryDirectory directory;
  const Arguments job = mlp + Arguments{"--checkpoint", directory / "c", "--json"};
  for (const int signal : {SIGKILL, SIGTERM}) {
    Running first(job + Arguments{"--steps", "1000000", "--resume", "--save-every", "5"});
    first.wait_for_lines(12);
    const Outcome second = run_tool(job + Arguments{"--steps", "1000000", "--resume"});
    EXPECT_EQ(second.code, 2) << second.err;
    EXPECT_EQ(second.out, "");
    EXPECT_TRUE(holds(second.err, (directory / "c") + " is in use by process ")) << second.err;
    const Arguments eval = {"eval",         "--model",      "mlp", "-o", "hidden=32", "--data-kind", "digits", "--data", source_file("data/digits.csv"),
                            "--checkpoint", directory / "c"};
    EXPECT_EQ(run_tool(eval).code, 0) << "a reader needs no lock";
    first.send(signal);
    first.finish();
    // However it ended.
    const Outcome next = run_tool(job + Arguments{"--steps", "1", "--resume"});
    EXPECT_EQ(next.code, 0) << next.err;
    EXPECT_FALSE(std::filesystem::exists(directory / "c/.lock"));
  }
}

TEST(Lock, IsAloneInOneProcessToo) {
  const TemporaryDirectory directory;
  {
    const FolderLock lock(directory.path());
    try {
      const FolderLock another(directory.path());
      FAIL() << "two locks";
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), directory.path() + " is in use by process " + std::to_string(getpid()) + "; wait for its end, or name another folder");
    }
  }
  const FolderLock again(directory.path());
  EXPECT_THROW(FolderLock(directory / "none"), SystemError);
  // Many at once: never two that hold it.
  std::atomic<int> holders{0}, most{0}, taken{0};
  std::vector<std::thread> threads;
  std::filesystem::create_directory(directory / "many");
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        try {
          const FolderLock lock(directory / "many");
          ++taken;
          most = std::max(most.load(), ++holders);
          --holders;
        } catch (const UserError&) {
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most.load(), 1);
  EXPECT_GT(taken.load(), 0);
}

TEST(Curve, ThatCannotBeWrittenFailsNoGoodRun) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "c/loss.svg/x");
  const Outcome outcome = run_tool(mlp + Arguments{"--steps", "2", "--checkpoint", directory / "c"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "note    there is no loss curve: cannot open " + (directory / "c/loss.svg") + " for writing: Is a directory")) << outcome.err;
  EXPECT_FALSE(holds(outcome.out, "curve   ")) << outcome.out;
}

TEST(StateNames, ThatNoFileHoldsAreRefusedBeforeTheFirstStep) {
  const TemporaryDirectory directory;
  const std::string text = run_tool({"show", "mlp", "-o", "hidden=8", "--at", "forward"}).out;
  for (const auto& [name, told] : {std::pair<std::string, std::string>{"__metadata__", "state '__metadata__': a checkpoint cannot hold this name"},
                                   {"layers.\xff", "state 'layers.\\xff': a checkpoint cannot hold a name that is not UTF-8"}}) {
    std::string changed = text;
    for (size_t at = 0; (at = changed.find("\"layers.0.weight\"", at)) != std::string::npos;) changed.replace(at, 17, "\"" + name + "\"");
    write_text(directory / "m.sg", changed);
    const Arguments job = {"train",   "--model", directory / "m.sg", "--data-kind", "digits", "--data", source_file("data/digits.csv"),
                           "--batch", "16",      "--steps",          "1",           "--json"};
    EXPECT_EQ(run_tool(job).code, 0) << name;
    for (const Arguments& kept : {Arguments{"--checkpoint", directory / "c"}, Arguments{"--save-weights", directory / "w.safetensors"}}) {
      const Outcome outcome = run_tool(job + kept);
      EXPECT_EQ(outcome.code, 2) << outcome.err;
      EXPECT_EQ(outcome.out, "");
      EXPECT_TRUE(holds(outcome.err, told)) << outcome.err;
    }
  }
  // A path is no name of state.
  write_text(directory / "m\xff.sg", text);
  const Arguments job = {"train",   "--model", directory / "m\xff.sg", "--data-kind",  "digits", "--data", source_file("data/digits.csv"),
                         "--batch", "16",      "--checkpoint",         directory / "c"};
  ASSERT_EQ(run_tool(job + Arguments{"--steps", "1"}).code, 0);
  EXPECT_EQ(run_tool(job + Arguments{"--steps", "2", "--resume"}).code, 0);
}

}  // namespace kept_work_test
}  // namespace stepgraph::testing
