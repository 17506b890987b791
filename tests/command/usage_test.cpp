// SPDX-License-Identifier: Apache-2.0
// Help, mistyped words, exit codes, doctor and version.
#include <gtest/gtest.h>
#include <signal.h>

#include "stepgraph/base/version.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"
#include "tools/job_options.h"

namespace stepgraph::testing {
namespace usage_test {

TEST(Usage, HelpTeaches) {
  const Outcome all = run_tool({"--help"});
  EXPECT_EQ(all.code, 0);
  for (const char* part : {"train", "eval", "generate", "run", "show", "doctor", "version", "Start here", "Exit codes"})
    EXPECT_NE(all.out.find(part), std::string::npos) << part;
  for (const std::string verb : {"train", "eval", "generate", "run", "show"}) {
    const Outcome outcome = run_tool({verb, "--help"});
    EXPECT_EQ(outcome.code, 0) << verb;
    EXPECT_NE(outcome.out.find("Example"), std::string::npos) << verb;
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(Usage, EveryJobKeyIsAFlagThatHelpShows) {
  const std::string help = run_tool({"train", "--help"}).out;
  for (const JobOption& option : job_options()) {
    EXPECT_NE(help.find(option.flag + " "), std::string::npos) << option.flag;
    EXPECT_NE(help.find("(" + option.key + ")"), std::string::npos) << option.key;
  }
}

TEST(Usage, MistypedWordsNameTheNearest) {
  const std::string config = source_file("examples/digits.toml");
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{}, "no verb is given; see stepgraph --help"},
      {{"trian"}, "unknown verb 'trian', the nearest is train"},
      {{"--jsn"}, "unknown option '--jsn'"},
      {{"train", "--bach", "3"}, "unknown option '--bach', the nearest is --batch"},
      {{"train", "--save-evry=3"}, "unknown option '--save-evry', the nearest is --save-every"},
      {{"train", "here"}, "unexpected argument 'here'; see stepgraph train --help"},
      {{"train", "--batch"}, "--batch"},
      {{"train", "--batch", "x"}, "--batch: found 'x', wanted an integer"},
      {{"train", "--batch", "0"}, "--batch: found 0, wanted at least 1"},
      {{"train", "--lr", "1e999"}, "--lr: found '1e999', wanted a number"},
      {{"train", "--shuffle", "maybe"}, "--shuffle: found 'maybe', wanted true or false"},
      {{"train", "--optimizer", "adamax"}, "--optimizer: found 'adamax', wanted one of sgd, adam, adamw, lion, rmsprop, adagrad, adafactor"},
      {{"train", "-o", "width"}, "--option: found 'width', wanted NAME=VALUE"},
      {{"train", "--group", "frozen=true"}, "--group: no patterns are given"},
      {{"train", "--group", "patterns=*; froze=true"}, "--group: froze: unknown key 'froze'; the nearest is 'frozen'"},
      {{"train", "--config", "none.toml"}, "cannot open none.toml"},
      {{"train"}, "no model is given"},
      {{"train", "--model", "mlp"}, "neither epochs nor steps is given"},
      {{"train", "--model", "mlp", "--steps", "1"}, "no data path is given"},
      {{"train", "--model", "mlp", "--steps", "1", "--data", "x.bin"}, "data path x.bin: no such file or folder"},
      {{"train", "--model", "mlp", "--steps", "1", "--data", "LICENSE"}, "the ending of LICENSE does not tell what it holds; give the data kind: digits, csv"},
      {{"train", "--config", config, "--model", "gtp"}, "there is no model 'gtp'; nearest are gpt"},
      {{"train", "--config", config, "--resume"}, "resume needs a checkpoint directory"},
      {{"train", "--config", config, "--save-every", "3"}, "save_every needs a checkpoint directory"},
      {{"train", "--config", config, "--micro-batches", "5"}, "a batch of 64 rows cannot be cut into 5 equal micro-batches"},
      {{"train", "--config", config, "--batch", "5000"}, "a batch of 5000 samples is larger than the dataset of 1437"},
      {{"train", "--config", config, "--mesh", "data"}, "mesh:1:5: found the end, wanted '='"},
      {{"train", "--config", config, "--mesh", "data=0"}, "axis 'data' has size 0"},
      {{"train", "--config", config, "--skip", "partition"}, "no optional pass 'partition' to skip"},
      {{"train", "--config", config, "--freeze", "convv*"}, "pattern 'convv*' matches no parameter; nearest are"},
      {{"train", "--config", config, "--schedule", "cosine", "--schedule-total", "0"}, "schedule: total is 0, wanted more steps than the 20 of warmup"},
      {{"train", "--config", config, "-o", "classes=5"}, "batch input label: the data has the value 9, the model takes 0 to 4 (classes 5); -o classes=10 makes room"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_EQ(outcome.err.rfind("stepgraph: ", 0), 0u) << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

TEST(Usage, OptionsThatChangeNothingAreRefused) {
  const TemporaryDirectory directory;
  const std::string config = source_file("examples/digits.toml"), csv = source_file("data/digits.csv");
  const Arguments digits = {"train", "--model", "mlp", "--data-kind", "digits", "--data", csv, "--steps", "1"}, job = {"train", "--config", config};
  const Arguments table = {"train", "--model", "mlp", "--data", csv, "--sample", "1,8,8", "--steps", "1"};
  write_text(directory / "one.toml", "[optimizer]\nname = \"sgd\"\nbeta1 = 0.5\n");
  write_text(directory / "two.toml", "[schedule]\nwarmup = 3\ntotal = 9\n");
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {digits + Arguments{"--warmup", "3"}, "--warmup: has no use with the schedule constant, wanted cosine or linear"},
      {digits + Arguments{"--schedule-total", "3"}, "--schedule-total: has no use with the schedule constant"},
      {digits + Arguments{"--minimum-lr", "0"}, "--minimum-lr: has no use with the schedule constant"},
      {job + Arguments{"--decay-every", "3"}, "--decay-every: has no use with the schedule cosine, wanted step"},
      {digits + Arguments{"--decay-factor", "3"}, "--decay-factor: has no use with the schedule constant, wanted step"},
      {digits + Arguments{"--momentum", "0.9"}, "--momentum: has no use with optimizer adamw, wanted sgd or rmsprop"},
      {digits + Arguments{"--optimizer", "sgd", "--beta1", "0.9"}, "--beta1: has no use with optimizer sgd, wanted adam, adamw or lion"},
      {digits + Arguments{"--optimizer", "lion", "--beta2", "0.9"}, "--beta2: has no use with optimizer lion, wanted adam or adamw"},
      {digits + Arguments{"--optimizer", "sgd", "--dampening", "0.5"}, "--dampening: has no use without a momentum"},
      {digits + Arguments{"--optimizer", "adafactor", "--epsilon", "1"}, "--epsilon: has no use with optimizer adafactor"},
      {digits + Arguments{"--scale", "2"}, "--scale: has no use with data of kind digits, wanted csv"},
      {table + Arguments{"--context", "2"}, "--context: has no use with data of kind csv, wanted text, tokens_u16 or tokens_u32"},
      {table + Arguments{"--test-data", csv}, "--test-data: has no use with data of kind csv, wanted npz, safetensors or images"},
      {table + Arguments{"--flip"}, "--flip: has no use with data of kind csv, wanted images"},
      {digits + Arguments{"--autocast", "cuda"}, "--autocast: has no use without a precision of bf16 or f16"},
      {digits + Arguments{"--loss-scale-interval", "5"}, "--loss-scale-interval: has no use without a dynamic loss scale"},
      {digits + Arguments{"--keep", "5"}, "--keep: has no use without a checkpoint directory"},
      {digits + Arguments{"--eval-every", "-1", "--eval-limit", "5"}, "--eval-limit: has no use without evaluations"},
      {digits + Arguments{"--config", directory / "one.toml"}, "one.toml:3: optimizer.beta1: has no use with optimizer sgd"},
      {digits + Arguments{"--config", directory / "two.toml"}, "two.toml:3: schedule.total: has no use with the schedule constant"},
      {digits + Arguments{"--weight-decay", "1", "--no-decay", "bias"}, "optimizer: no_decay: pattern 'bias' matches no parameter; nearest are layers.0.bias"},
      {digits + Arguments{"--no-decay", "*.bias"}, "optimizer: no_decay: pattern '*.bias' changes nothing: layers.0.bias is treated alike without it"},
      {digits + Arguments{"--freeze", "*"}, "optimizer: all 6 parameters of the model are frozen, so that nothing is trained"},
      {digits + Arguments{"--group", "patterns=layers.0.*; rate_factor=2", "--group", "patterns=layers.0.bias; frozen=true"},
       "optimizer: pattern 'layers.0.bias' changes nothing"},
      {digits + Arguments{"--clip-norm", "-1"}, "--clip-norm: found -1, wanted a number above 0"},
      {digits + Arguments{"--clip-norm", "0"}, "--clip-norm: found 0, wanted a number above 0"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err << "\n  lacks: " << message;
  }
  // What one changes the other may give a use.
  const Arguments quick = {"--steps", "1", "--eval-every", "-1", "--json"};
  for (const Arguments& good : {digits + Arguments{"--config", directory / "two.toml", "--schedule", "linear"},
                                digits + Arguments{"--config", directory / "one.toml", "--optimizer", "adam"},
                                job + Arguments{"--schedule", "constant", "--optimizer", "sgd", "--momentum", "0.9", "--dampening", "0"}}) {
    const Outcome outcome = run_tool(good + quick);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

TEST(Usage, BytesThatAreNoTextAreEscaped) {
  const TemporaryDirectory directory;
  const std::string bad = "a\xff\x1b[31m";
  for (const Arguments& arguments :
       {Arguments{"train", "--steps", "1", "--data-kind", "digits", "--data", source_file("data/digits.csv"), "--model", bad},
        Arguments{"train", "--steps", "1", "--data-kind", "digits", "--data", source_file("data/digits.csv"), "--model", "mlp", "--optimizer", bad}, Arguments{"run", directory / bad}, Arguments{"show", bad + ".sg"},
        Arguments{"train", "--" + bad}, Arguments{"run", source_file("examples/square.sg"), "--set", bad + "=1"},
        Arguments{"train", "--model", "mlp", "--steps", "1", "--data", bad}}) {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("a\\xff\\x1b[31m"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find('\xff'), std::string::npos) << outcome.err;
  }
  EXPECT_NE(run_tool({"show", "gr\xc3\xbc\xc3\x9f"}).err.find("gr\xc3\xbc\xc3\x9f"), std::string::npos) << "text stays text";
}

TEST(Usage, FlagsStandOverTheJobFile) {
  const TemporaryDirectory directory;
  write_text(directory / "job.toml", "[model]\nname = \"mlp\"\nhidden = [8]\n[data]\npath = \"" + source_file("data/digits.csv") +
                                         "\"\nkind = \"digits\"\n[train]\nsteps = 9\neval_every = -1\n");
  const auto steps = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_training(outcome.out).steps.size();
  };
  const Arguments job = {"train", "--config", directory / "job.toml", "--json"};
  EXPECT_EQ(steps(run_tool(job)), 9u);
  EXPECT_EQ(steps(run_tool(job + Arguments{"--steps", "2"})), 2u);
  EXPECT_EQ(steps(run_tool(job + Arguments{"--steps", "2", "--steps", "3"})), 3u);
  // Options of the file's model do not follow to another one.
  EXPECT_EQ(steps(run_tool(job + Arguments{"--steps", "1", "--model", "convnet"})), 1u);
}

TEST(Usage, FullDisksGiveThree) {
  Start full;
  full.out = "/dev/full";
  const std::vector<Arguments> verbs = {{"--help"}, {"version"}, {"doctor"}, {"show", "mlp"}, {"run", source_file("examples/square.sg"), "--set", "x=[1]"}};
  for (const Arguments& arguments : verbs) {
    const Outcome outcome = run_tool(arguments, full);
    EXPECT_EQ(outcome.code, 3) << arguments[0];
    EXPECT_NE(outcome.err.find("cannot write to standard output"), std::string::npos) << outcome.err;
  }
}

TEST(Doctor, SaysWhatIsThere) {
  const Outcome outcome = run_tool({"doctor"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* part : {"stepgraph", "cpu", "memory", "disk", "executors", "operators", "models", "mlp", "gpt"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  const auto lines = read_json_lines(run_tool({"doctor", "--json"}).out);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_GE(lines[0].number("cores"), 1);
  EXPECT_GT(lines[0].number("memory_available_bytes"), 0);
}

TEST(Version, IsPrinted) {
  for (const char* word : {"version", "--version"}) EXPECT_EQ(run_tool({word}).out, "stepgraph " + std::string(version_string) + "\n") << word;
}

TEST(Usage, HelpIsAlsoAVerb) {
  EXPECT_EQ(run_tool({"help"}).out, run_tool({"--help"}).out);
  EXPECT_EQ(run_tool({"help", "show"}).out, run_tool({"show", "--help"}).out);
}

TEST(Usage, EvalAndGenerateShowTheirOwnOptionsAndTakeThoseOfTraining) {
  for (const std::string verb : {"eval", "generate"}) {
    const std::string help = run_tool({verb, "--help"}).out;
    EXPECT_NE(help.find("--checkpoint "), std::string::npos) << verb;
    EXPECT_EQ(help.find("--weight-decay "), std::string::npos) << verb;
    const Outcome outcome = run_tool({verb, "--model", "mlp", "--weight-decay", "0.1"});
    EXPECT_NE(outcome.err.find(verb + " needs --checkpoint"), std::string::npos) << outcome.err;
  }
}

TEST(Usage, RunOfAPytorchProgramNamesTheVerbsThatTakeOne) {
  const Outcome outcome = run_tool({"run", "model.pt2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("stepgraph eval --model"), std::string::npos) << outcome.err;
}

}  // namespace usage_test
}  // namespace stepgraph::testing
