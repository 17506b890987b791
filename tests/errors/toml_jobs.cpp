// SPDX-License-Identifier: Apache-2.0
// Malformed job files: one UserError each, with file, line, and what was found and wanted.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "stepgraph/base/error.h"
#include "tests/support/places.h"
#include "tools/job_options.h"

namespace stepgraph {
namespace toml_jobs_test {

struct Case {
  std::string text;
  std::string place;    ///< after the file's name: "3" or "3:7"
  std::string message;  ///< a part of it
};

const std::string model = "[model]\nname = \"mlp\"\n";

std::vector<Case> syntax_cases() {
  return {
      {"[train\nbatch = 3\n", "1:", "not TOML: "},
      {"[train]\nbatch = \n", "2:", "not TOML: "},
      {"[train]\nbatch 3\n", "2:", "not TOML: "},
      {"[train]\nbatch = 3 4\n", "2:", "not TOML: "},
      {"[train]\nbatch = 3\nbatch = 4\n", "3:", "not TOML: "},
      {"[train]\nbatch = 3\n[data]\n[train]\nsteps = 2\n", "4:", "not TOML: "},
      {"[data]\npath = \"x\n", "2:", "not TOML: "},
      {"[data]\npath = 'x\n", "2:", "not TOML: "},
      {"[data]\npath = \"\\q\"\n", "2:", "not TOML: "},
      {"[data]\npath = x\n", "2:", "not TOML: "},
      {"[train]\nbatch = 99999999999999999999\n", "2:", "not TOML: "},
      {"[train]\nbatch = 03\n", "2:", "not TOML: "},
      {"[optimizer]\nlr = 1e\n", "2:", "not TOML: "},
      {"[optimizer]\nlr = .5\n", "2:", "not TOML: "},
      {"[data]\nsample = [1, 8\n", "2:", "not TOML: "},
      {"[data]\npath = \"\xff\"\n", "2:", "not TOML: "},
      {std::string("[data]\npath = \"a\0b\"\n", 19), "2:", "not TOML: "},
      {"[data]\nsample = " + std::string(5000, '[') + "\n", "2:", "not TOML: "},
      {"[data]\nsample.x = 1\nsample = [1]\n", "3:", "not TOML: "},
      {"= 3\n", "1:", "not TOML: "},
  };
}

std::vector<Case> key_cases() {
  return {
      {"batch = 3\n", "1:", "'batch' stands outside of a section; write it under [train]"},
      {"colour = 3\n", "1:", "'colour' stands outside of a section; the sections are [model], [data]"},
      {"\n[modle]\nname = \"mlp\"\n", "2:", "unknown section [modle]; the nearest is [model]"},
      {"[[tarin]]\nbatch = 3\n", "1:", "unknown section [tarin]; the nearest is [train]"},
      {"[[train]]\nbatch = 3\n", "1:", "found a list called train, wanted a section [train]"},
      {"train = 3\n", "1:", "found an integer called train, wanted a section [train]"},
      {"[train]\n\nbacth = 3\n", "3:", "train.bacth: unknown key; the nearest is train.batch"},
      {"[train]\nlr = 3\n", "2:", "train.lr: unknown key; the nearest is optimizer.lr"},
      {"[optimizer]\nweightdecay = 3\n", "2:", "unknown key; the nearest is optimizer.weight_decay"},
      {"[optimizer]\ngroup = []\n", "2:", "unknown key; the nearest is optimizer.groups"},
      {"[data]\npaht = \"x\"\n", "2:", "data.paht: unknown key; the nearest is data.path"},
      {"[checkpoint]\nevery = 3\n", "2:", "checkpoint.every: unknown key; the nearest is schedule.every"},
      {"[output]\ncurves = \"x\"\n", "2:", "unknown key; the nearest is output.curve"},
      {"[schedule]\nwarm_up = 3\n", "2:", "unknown key; the nearest is schedule.warmup"},
  };
}

std::vector<Case> value_cases() {
  return {
      {"[train]\nbatch = \"many\"\n", "2:", "train.batch: found a text, wanted a number"},
      {"[train]\nbatch = true\n", "2:", "train.batch: found true or false, wanted a number"},
      {"[train]\nbatch = [3]\n", "2:", "train.batch: found a list, wanted a number"},
      {"[train]\nbatch = { a = 1 }\n", "2:", "train.batch: found a table, wanted a number"},
      {"[train]\nbatch = 2020-01-01\n", "2:", "train.batch: found a date or time, wanted a number"},
      {"[train]\nbatch = 1.5\n", "2:", "train.batch: found '1.5', wanted an integer"},
      {"[train]\nbatch = 0\n", "2:", "train.batch: found 0, wanted at least 1"},
      {"[train]\nbatch = -3\n", "2:", "train.batch: found -3, wanted at least 1"},
      {"[train]\nsteps = 9223372036854775807\n", "2:", "train.steps: found 9223372036854775807, wanted at most 1000000000"},
      {"[train]\nseed = -1\n", "2:", "train.seed: found -1, wanted at least 0"},
      {"[train]\neval_every = -2\n", "2:", "train.eval_every: found -2, wanted at least -1"},
      {"[train]\nshuffle = 1\n", "2:", "train.shuffle: found an integer, wanted true or false"},
      {"[train]\nlast_batch = \"keep\"\n", "2:", "train.last_batch: found 'keep', wanted one of drop, short, pad"},
      {"[train]\nclip_norm = nan\n", "2:", "train.clip_norm: found 'nan', wanted a number"},
      {"[train]\nclip_norm = -1\n", "2:", "train.clip_norm: found -1, wanted a number above 0"},
      {"[optimizer]\nlr = inf\n", "2:", "optimizer.lr: found 'inf', wanted a number"},
      {"[optimizer]\nlr = -0.1\n", "2:", "optimizer.lr: found -0.1, wanted at least 0"},
      {"[optimizer]\nbeta1 = 1.5\n", "2:", "optimizer.beta1: found 1.5, wanted at most 1"},
      {"[optimizer]\nname = \"adamax\"\n", "2:", "optimizer.name: found 'adamax', wanted one of sgd, adam, adamw, lion, rmsprop, adagrad, adafactor"},
      {"[optimizer]\nname = 3\n", "2:", "optimizer.name: found an integer, wanted a text in quotes"},
      {"[optimizer]\nno_decay = [[\"a\"]]\n", "2:", "optimizer.no_decay: found a list, wanted a list of numbers or texts"},
      {"[optimizer]\nno_decay = [\"a,b\"]\n", "2:", "found 'a,b' in a list, wanted an element without a comma"},
      {"[optimizer]\nfreeze = []\n", "2:", "optimizer.freeze: no patterns are given"},
      {"[optimizer]\ngroups = 3\n", "2:", "optimizer.groups: found an integer, wanted [[optimizer.groups]] tables"},
      {"[optimizer]\ngroups = [3]\n", "2:", "optimizer.groups: found an integer, wanted [[optimizer.groups]] tables"},
      {"[[optimizer.groups]]\npatterns = [\"*\"]\nratefactor = 2\n", "3:", "unknown key 'ratefactor'; the nearest is 'rate_factor'"},
      {"[[optimizer.groups]]\npatterns = [\"*\"]\nfrozen = \"maybe\"\n", "3:", "frozen: found 'maybe', wanted true or false"},
      {"[[optimizer.groups]]\nrate_factor = 2\n", "1:", "a group without patterns"},
      {"[schedule]\nkind = \"cosin\"\n", "2:", "found 'cosin', wanted one of constant, cosine, linear, step"},
      {"[data]\nkind = \"digit\"\n", "2:", "data.kind: found 'digit', wanted one of digits, csv, npz, safetensors"},
      {"[data]\nkind = \"\"\"csv\n\\u0001\"\"\"\n", "2:", "data.kind: found 'csv\\n?', wanted one of digits"},
      {"[data]\nkind = \"" + std::string(5000, 'x') + "\"\n", "2:", "xxx (cut here)"},
      {"[data]\npath = [\"x\"]\n", "2:", "data.path: found a list, wanted a text in quotes"},
      {"[data]\nsample = [1, 0]\n", "2:", "data.sample: found 0, wanted at least 1"},
      {"[data]\nsample = [1, \"x\"]\n", "2:", "data.sample: found 'x', wanted an integer"},
      {"[data]\nheld_out = 1\n", "2:", "data.held_out: found 1, wanted at least 2"},
      {"[checkpoint]\nkeep = 0\n", "2:", "checkpoint.keep: found 0, wanted at least 1"},
      {"[checkpoint]\nresume = \"yes\"\n", "2:", "checkpoint.resume: found a text, wanted true or false"},
      {"[output]\ncurve = 3\n", "2:", "output.curve: found an integer, wanted a text in quotes"},
  };
}

std::vector<Case> model_cases() {
  return {
      {"[model]\nwidth = 3\n", "1:", "[model] has no name"},
      {"[model]\nname = 3\n", "2:", "model.name: found an integer, wanted a text in quotes"},
      {"[model]\nname = \"gtp\"\n", "2:", "model.name: there is no model 'gtp'; nearest are gpt"},
      {model + "hiden = [3]\n", "3:", "model.hiden: model mlp has no option 'hiden'; nearest are hidden"},
      {model + "classes = 10\nhidden = [3, 0]\n", "4:", "model.hidden: model mlp: option hidden is '0', wanted an integer from 1"},
      {model + "activation = \"rellu\"\n", "3:", "option activation is 'rellu', wanted relu, gelu, tanh or silu"},
      {model + "dropout = 2\n", "3:", "option dropout is '2', wanted a number from 0 to 1"},
      {model + "[model.x]\ny = 3\n", "3:", "model.x: found a table, wanted a list or a text"},
      {"[model]\nname = \"some.sg\"\nwidth = 3\n", "3:", "model.width: options are for models of the zoo; some.sg is a file"},
  };
}

void expect_error(const Case& one) {
  SCOPED_TRACE(one.text.substr(0, 200));
  JobText job;
  try {
    read_job_text(one.text, "job.toml", job);
    ADD_FAILURE() << "was accepted";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.rfind("job.toml:" + one.place, 0), 0u) << text;
    EXPECT_NE(text.find(one.message), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_FALSE(text.ends_with('.')) << text;
    EXPECT_LT(text.size(), 400u);
  }
}

TEST(TomlJobs, EachMistakeIsOneErrorWithItsLine) {
  size_t count = 0;
  for (const auto& cases : {syntax_cases(), key_cases(), value_cases(), model_cases()})
    for (const Case& one : cases) {
      expect_error(one);
      ++count;
    }
  EXPECT_GE(count, 80u);
}

TEST(TomlJobs, AFileThatIsTooLargeOrMissing) {
  JobText job;
  EXPECT_THROW(read_job_file("/no/such/job.toml", job), UserError);
  EXPECT_THROW(read_job_file(testing::source_root(), job), Error);
}

TEST(TomlJobs, EveryKeyIsRead) {
  JobText job;
  read_job_text(R"(
[model]
name = "mlp"
hidden = [32, 16]
dropout = 0.5
[data]
kind = "csv"
path = "x.csv"
sample = [1, 8, 8]
scale = 0.5
input = "x"
label = "y"
[optimizer]
name = "sgd"
lr = 1
momentum = 0.9
nesterov = true
no_decay = "*.bias, bn*"
[[optimizer.groups]]
patterns = ["fc*"]
rate_factor = 2
[[optimizer.groups]]
patterns = "conv*"
weight_decay = 0.5
frozen = false
[schedule]
kind = "linear"
total = 100
[train]
batch = 64.0
steps = 5
micro_batches = 4
clip_norm = 1
last_batch = "pad"
shuffle = false
seed = 9007199254740993
mesh = "data=2"
skip = ["cse"]
[checkpoint]
directory = "runs/x"
keep = 7
resume = true
[output]
curve = "c.svg"
)",
                "job.toml", job);
  const TrainJob& read = job.job;
  EXPECT_EQ(read.model.name, "mlp");
  EXPECT_EQ(read.model.options, (std::map<std::string, std::string>{{"hidden", "32,16"}, {"dropout", "0.5"}}));
  EXPECT_EQ(read.data.kind, "csv");
  EXPECT_EQ(read.data.sample, (std::vector<int64_t>{1, 8, 8}));
  EXPECT_EQ(read.data.scale, 0.5);
  EXPECT_EQ(read.data.input + read.data.label, "xy");
  EXPECT_EQ(read.optimizer.kind, Optimizer::Kind::Sgd);
  EXPECT_EQ(read.optimizer.rate.rate, 1);
  EXPECT_EQ(read.optimizer.momentum, 0.9);
  EXPECT_TRUE(read.optimizer.nesterov);
  EXPECT_EQ(read.optimizer.no_decay, (std::vector<std::string>{"*.bias", "bn*"}));
  ASSERT_EQ(read.optimizer.groups.size(), 2u);
  EXPECT_EQ(read.optimizer.groups[0].rate_factor, 2);
  EXPECT_EQ(read.optimizer.groups[1].patterns, (std::vector<std::string>{"conv*"}));
  EXPECT_EQ(read.optimizer.groups[1].weight_decay, 0.5);
  EXPECT_EQ(read.optimizer.rate.kind, Schedule::Kind::WarmupLinear);
  EXPECT_EQ(read.optimizer.rate.total, 100);
  EXPECT_EQ(read.batch, 64);
  EXPECT_EQ(read.step.micro_batches, 4);
  EXPECT_EQ(read.step.clip_norm, 1.0);
  EXPECT_EQ(read.last_batch, LastBatch::Pad);
  EXPECT_FALSE(read.shuffle);
  EXPECT_EQ(read.seed, 9007199254740993u);
  EXPECT_EQ(read.mesh, "data=2");
  EXPECT_EQ(read.skip, (std::vector<std::string>{"cse"}));
  EXPECT_EQ(read.checkpoint, "runs/x");
  EXPECT_EQ(read.keep, 7);
  EXPECT_TRUE(read.resume);
  EXPECT_EQ(job.curve, "c.svg");
}

TEST(TomlJobs, ExamplesAreRead) {
  for (const char* name : {"digits", "gpt"}) {
    JobText job;
    EXPECT_NO_THROW(read_job_file(std::string(testing::source_root()) + "/examples/" + name + ".toml", job));
    EXPECT_NO_THROW(check(job.job));
  }
}

TEST(JobOptions, KeysFlagsAndDefaultsAgree) {
  std::vector<std::string> keys, flags;
  for (const JobOption& option : job_options()) {
    keys.push_back(option.key);
    flags.push_back(option.flag);
    EXPECT_NE(option.key.find('.'), std::string::npos) << option.key;
    EXPECT_TRUE(option.flag.starts_with("--")) << option.flag;
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_FALSE(option.help.ends_with('.')) << option.key;
  }
  for (auto* names : {&keys, &flags}) {
    std::sort(names->begin(), names->end());
    EXPECT_EQ(std::adjacent_find(names->begin(), names->end()), names->end());
  }
}

}  // namespace toml_jobs_test
}  // namespace stepgraph
