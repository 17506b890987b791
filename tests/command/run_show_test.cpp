// SPDX-License-Identifier: Apache-2.0
// stepgraph run and show.
#include <gtest/gtest.h>

#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/train/data/arrays.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace run_show_test {

const std::string program = R"(stepgraph 1
module sample

symbol n in [0, 1000]

graph @main {
  input %x : f32[n, 2] batch "x"
  input %w : f32[2] parameter "w"
  input %k : i32[n] batch "k"
  input %on : bool[] batch "on"
  %wide = broadcast(%w, dims=[1], shape=[n, 2]) : f32[n, 2]
  %product = mul(%x, %wide) : f32[n, 2]
  %y = reduce_sum(%product, dims=[0, 1]) : f32[]
  %twice = add(%k, %k) : i32[n]
  output %y user_output "y"
  output %twice user_output "twice"
  output %on user_output "on"
}

entry main @main
)";

class RunVerb : public ::testing::Test {
 protected:
  void SetUp() override { write_text(file_, program); }
  Arguments command(const Arguments& more) const { return Arguments{"run", file_} + more; }
  Arguments with(const std::string& x, const std::string& w, const std::string& k, const std::string& on) const {
    return {"run", file_, "--set", "x=" + x, "--set", "w=" + w, "--set", "k=" + k, "--set", "on=" + on};
  }
  std::string values(const Arguments& arguments) const {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }
  void refused(const Arguments& arguments, const std::string& message) const {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
  TemporaryDirectory directory_;
  std::string file_ = directory_ / "sample.sg";
};

TEST_F(RunVerb, EvaluatesAndDifferentiates) {
  const Arguments arguments = with("[[1,2],[3,4]]", "[10, 100]", "[7, -8]", "true");
  EXPECT_EQ(values(arguments), "y = f32[] {640}\ntwice = i32[2] {14, -16}\non = bool[] {true}\n");
  EXPECT_EQ(values(arguments + Arguments{"--json"}), "{\"y\":640.0,\"twice\":[14,-16],\"on\":true}\n");
  EXPECT_EQ(values(arguments + Arguments{"--json", "--grad", "x,w"}),
            "{\"y\":640.0,\"twice\":[14,-16],\"on\":true,\"grad(x)\":[[10.0,100.0],[10.0,100.0]],\"grad(w)\":[4.0,6.0]}\n");
  EXPECT_EQ(values(arguments + Arguments{"--json", "--grad", "w", "--dtype", "f64"}), "{\"y\":640.0,\"twice\":[14,-16],\"on\":true,\"grad(w)\":[4.0,6.0]}\n");
  EXPECT_EQ(values(with("[[1,2]]", "[1.001, 1]", "[0]", "0") + Arguments{"--dtype", "bf16"}), "y = bf16[] {3}\ntwice = i32[1] {0}\non = bool[] {false}\n");
}

TEST_F(RunVerb, SymbolicSizesDownToNothingOnAnyMesh) {
  for (const char* mesh : {"data=1", "data=2", "data=3", "data=5"}) {
    const Arguments split = {"--grad", "w", "--mesh", mesh};
    EXPECT_EQ(values(with("[[1,2],[3,4],[5,6]]", "[1,1]", "[1,2,3]", "false") + split),
              "y = f32[] {21}\ntwice = i32[3] {2, 4, 6}\non = bool[] {false}\ngrad(w) = f32[2] {9, 12}\n");
  }
  write_npz(directory_ / "empty.npz", {{"x", Literal(DType::F32, {0, 2})}});
  EXPECT_EQ(values(with("@" + directory_ / "empty.npz", "[1,1]", "[]", "false") + Arguments{"--grad", "w", "--json"}),
            "{\"y\":0.0,\"twice\":[],\"on\":false,\"grad(w)\":[0.0,0.0]}\n");
}

TEST_F(RunVerb, ReadsAndWritesArrays) {
  const std::string saved = directory_ / "out.npz";
  const std::string text = values(with("[[1,2]]", "[3,4]", "[5]", "1") + Arguments{"--grad", "x", "--save", saved});
  EXPECT_NE(text.find("saved " + saved), std::string::npos);
  const NamedArrays arrays = read_npz(saved);
  ASSERT_EQ(arrays.size(), 4u);
  ASSERT_TRUE(find_array(arrays, "grad(x)"));
  EXPECT_EQ(find_array(arrays, "grad(x)")->at(1), 4);
  EXPECT_EQ(find_array(arrays, "twice")->dtype(), DType::I32);
  // A gradient as the next input, by its name.
  EXPECT_NE(values(with("@" + saved + ":grad(x)", "[1,1]", "@" + saved + ":twice", "true")).find("y = f32[] {7}"), std::string::npos);
}

TEST_F(RunVerb, SaysThatThereIsNoGradient) {
  const Outcome outcome = run_tool(with("[[1,2]]", "[3,4]", "[5]", "1") + Arguments{"--grad", "k,w"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("note    k has no gradient"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out.find("grad(k)"), std::string::npos);
  EXPECT_NE(outcome.out.find("grad(w) = f32[2] {1, 2}"), std::string::npos) << outcome.out;
}

TEST_F(RunVerb, NamesWhatIsWrong) {
  const std::string x = "[[1,2]]", w = "[3,4]", k = "[5]", on = "true";
  refused(command({}), "no value is given for x f32[n, 2], w f32[2], k i32[n], on bool[]");
  refused(command({"--set", "q=1"}), "--set: there is no 'q'; nearest are ");
  refused(command({"--set", "x"}), "--set: found 'x', wanted NAME=VALUE");
  refused(with("[[1,2],[3]]", w, k, on), "x:1:11: found ']', wanted lists of equal length");
  refused(with("[1,[2]]", w, k, on), "wanted lists of equal depth");
  refused(with("[1,[]]", w, k, on), "the lists are not equally deep");
  refused(with("[[1,2]", w, k, on), "wanted ']'");
  refused(with("[[1,2]] 3", w, k, on), "wanted the end of the value");
  refused(with("[[1,b]]", w, k, on), "x:1:5: found 'b', wanted a number");
  refused(with(std::string(40, '['), w, k, on), "wanted at most 16 levels of lists");
  refused(with(x, "[1,2,3]", k, on), "input 'w': dim 0 is 3, wanted 2");
  refused(with(x, w, "[1,2]", on), "n");
  refused(with(x, w, "[1.5]", on), "k:1:2: found '1.5', wanted an integer");
  refused(with(x, w, "[3000000000]", on), "3000000000 does not fit i32");
  refused(with(x, w, k, "2"), "wanted true or false");
  refused(with("@none.npz", w, k, on), "cannot open none.npz");
  refused(with(x, w, k, on) + Arguments{"--grad", "z"}, "--grad: there is no 'z'; nearest are ");
  refused(with(x, w, k, on) + Arguments{"--grad", "x", "--of", "z"}, "--of: there is no 'z'; nearest are y");
  refused(with(x, w, k, on) + Arguments{"--dtype", "i32"}, "--dtype: found 'i32', wanted f64, f32, bf16 or f16");
  refused(with(x, w, k, on) + Arguments{"--mesh", "data"}, "mesh:1:5: found the end, wanted '='");
  refused(with(x, w, k, on) + Arguments{"--mesh", "data=1000000000"}, "mesh");
  refused(with(x, w, k, on) + Arguments{"--shard", "x={data}"}, "--shard wants a --mesh");
  refused(with(x, w, k, on) + Arguments{"--mesh", "data=2", "--shard", "x={model},{}"}, "model");
  refused(with(x, w, k, on) + Arguments{"--entry", "other"}, "has no entry 'other'");
  refused({"run", directory_ / "none.sg"}, "cannot open");
  refused(with(x, w, k, on) + Arguments{"--save", "/no/such/place.npz"}, "/no/such/place.npz");
}

TEST(ShowVerb, EveryStageOfEveryModelReadsBack) {
  for (const Arguments& model :
       {Arguments{"mlp"}, {"convnet"}, {"resnet", "-o", "stem=small", "-o", "size=8"}, {"gpt", "-o", "layers=2"}, {"bert", "-o", "layers=2"}}) {
    for (const std::string stage :
         {"forward", "outline", "differentiate", "accumulate", "scale", "clip", "step", "sharded", "local", "simplify", "cse", "propagate", "partition"}) {
      SCOPED_TRACE(model[0] + " " + stage);
      const Arguments arguments = Arguments{"show"} + model + Arguments{"--at", stage, "--mesh", "data=2"};
      const Outcome outcome = run_tool(arguments);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Module module = parse_module(outcome.out);
      EXPECT_NO_THROW(verify(module));
      EXPECT_EQ(print_module(module), outcome.out);
      const bool is_local = stage == "local" || stage == "partition", is_sharded = stage == "sharded" || stage == "propagate";
      EXPECT_EQ(module.stage, is_local ? Stage::Local : is_sharded ? Stage::Sharded : Stage::Logical);
      EXPECT_EQ(outcome.out.find("all_reduce") != std::string::npos, is_local);
    }
  }
}

TEST(ShowVerb, PicturesAndSummaries) {
  for (const std::string stage : {"forward", "step", "local"}) {
    const Outcome dot = run_tool({"show", "mlp", "--dot", "--at", stage});
    EXPECT_EQ(dot.code, 0) << dot.err;
    EXPECT_EQ(dot.out.rfind("digraph", 0), 0u) << dot.out.substr(0, 80);
  }
  const Outcome summary = run_tool({"show", "--config", source_file("examples/gpt.toml"), "--mesh", "data=2", "--at", "local", "--summary"});
  EXPECT_EQ(summary.code, 0) << summary.err;
  EXPECT_NE(summary.out.find("module gpt · stage local"), std::string::npos) << summary.out;
  EXPECT_NE(summary.out.find("all_reduce"), std::string::npos);
  const Outcome models = run_tool({"show", "--models"});
  for (const char* name : {"mlp: ", "convnet: ", "resnet: ", "gpt: ", "bert: ", "-o layers="}) EXPECT_NE(models.out.find(name), std::string::npos) << name;
}

TEST(ShowVerb, OneEntryAndAFile) {
  const TemporaryDirectory directory;
  const Outcome eval = run_tool({"show", "mlp", "--entry", "eval"});
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_NE(eval.out.find("graph @eval"), std::string::npos) << eval.out;
  EXPECT_EQ(eval.out.find("graph @step"), std::string::npos);
  const std::string file = directory / "m.sg";
  write_text(file, run_tool({"show", "mlp", "--at", "forward"}).out);
  EXPECT_EQ(run_tool({"show", file, "--at", "forward"}).out, read_text(file));
  EXPECT_EQ(run_tool({"show", file}).out, run_tool({"show", "mlp"}).out);
  EXPECT_EQ(run_tool({"show", source_file("examples/square.sg")}).code, 0);
}

TEST(ShowVerb, NamesWhatIsWrong) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"show"}, "name a model of the zoo, a .sg or .pt2 file, or a job with --config"},
      {{"show", "gtp"}, "there is no model 'gtp'; nearest are gpt"},
      {{"show", "gpt", "--at", "locl"},
       "--at: there is no stage or pass 'locl'; nearest are local"},
      {{"show", "gpt", "--entry", "main"}, "has no entry 'main'; its entries: init, step, eval"},
      {{"show", "gpt", "-o", "layer=3"}, "model gpt has no option 'layer'; nearest are layers"},
      {{"show", "gpt", "-o", "layers=x"}, "option layers is 'x', wanted an integer"},
      {{"show", "gpt", "-o", "heads=3"}, "3"},
      {{"show", "gpt", "--model", "mlp"}, "found both gpt and --model mlp"},
      {{"show", "gpt", "--freeze", "nothing.*", "--at", "step"}, "pattern 'nothing.*' matches no parameter; nearest are"},
      {{"show", "gpt", "--skip", "fusion", "--at", "local"}, "no optional pass 'fusion' to skip; nearest are fuse"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

TEST(ShowVerb, WhatIsCompiledIsShownAsItIs) {
  const TemporaryDirectory directory;
  for (const std::string stage : {"sharded", "local"}) {
    const std::string file = directory / (stage + ".sg"), other = stage == "local" ? "sharded" : "local";
    write_text(file, run_tool({"show", "mlp", "-o", "hidden=8", "--micro-batches", "2", "--at", stage, "--mesh", "data=2"}).out);
    ASSERT_NE(read_text(file).find("batch[1] \"image\""), std::string::npos);
    for (const Arguments& as_it_is : {Arguments{}, Arguments{"--at", stage}, Arguments{"--at", stage, "--mesh", "data=2"}}) {
      const Outcome outcome = run_tool(Arguments{"show", file} + as_it_is);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(outcome.out, read_text(file));
    }
    EXPECT_EQ(run_tool({"show", file, "--summary"}).code, 0);
    const auto refused = [&](const Arguments& arguments, const std::string& message) {
      const Outcome outcome = run_tool(arguments);
      EXPECT_EQ(outcome.code, 2) << outcome.err;
      EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    };
    for (const std::string& at : {other, std::string("forward"), std::string("simplify")})
      refused({"show", file, "--at", at}, "is at stage " + stage + ": it can be shown at that stage alone, found --at " + at);
    refused({"show", file, "--at", stage, "--mesh", "data=4"}, "is compiled for mesh data=2, found --mesh data=4");
    refused({"run", file, "--entry", "step"}, "is at stage " + stage + " for mesh data=2, wanted logical");
    refused({"train", "--model", file, "--data-kind", "digits", "--data", source_file("data/digits.csv"), "--steps", "1"},
            "is at stage " + stage + ", wanted logical");
  }
}

TEST(ShowVerb, AForwardModuleWithoutALossIsTheUsersToMend) {
  const TemporaryDirectory directory;
  const std::string text = run_tool({"show", "mlp", "-o", "hidden=8", "--at", "forward"}).out;
  for (const std::string role : {"loss_numerator", "loss_denominator"}) {
    std::string without = text;
    const size_t at = without.find(" " + role + " \"loss\"");
    ASSERT_NE(at, std::string::npos);
    without.replace(at, role.size() + 8, " user_output \"other\"");
    write_text(directory / "m.sg", without);
    for (const Arguments& more : {Arguments{}, Arguments{"--micro-batches", "2"}}) {
      const Outcome outcome = run_tool(Arguments{"show", directory / "m.sg"} + more);
      EXPECT_EQ(outcome.code, 2) << outcome.err;
      EXPECT_NE(outcome.err.find("entry forward has no output with the role " + role), std::string::npos) << outcome.err;
    }
  }
}

TEST_F(RunVerb, EntriesOfATrainingModuleRunOnAMesh) {
  const TemporaryDirectory directory;
  write_text(directory / "m.sg", run_tool({"show", "mlp", "-o", "hidden=4", "-o", "size=2", "-o", "classes=2", "--at", "forward"}).out);
  const auto of = [&](const Arguments& more) {
    const Outcome outcome = run_tool(Arguments{"run", directory / "m.sg", "--entry", "init", "--json"} + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string one = of({"--set", "seed=3"});
  EXPECT_FALSE(one.empty());
  EXPECT_EQ(of({"--seed", "3"}), one);
  EXPECT_EQ(of({"--set", "seed=3", "--mesh", "data=2"}), one);
  EXPECT_EQ(of({"--set", "seed=3", "--mesh", "a=2,b=2"}), one);
}

TEST_F(RunVerb, NamesOnceAndBytesEscaped) {
  const TemporaryDirectory directory;
  const std::string square = source_file("examples/square.sg");
  const auto refused = [&](const Arguments& arguments, const std::string& message) {
    const Outcome outcome = run_tool(Arguments{"run"} + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  };
  refused({square, "--set", "x=[1]", "--grad", "x,x", "--json"}, "--grad: 'x' is named twice");
  refused({square, "--set", "x=[1]", "--set", "x=[2]"}, "--set: 'x' is named twice");
  refused({square, "--set", "x=[1]", "--mesh", "data=2", "--shard", "x={}", "--shard", "x={data}"}, "--shard: 'x' is named twice");
  refused({square, "--set", "x=[1]", "--seed", "-1"}, "--seed: found -1, wanted at least 0");
  std::string text = read_text(square);
  for (size_t at = 0; (at = text.find("\"y\"", at)) != std::string::npos; ++at) text.replace(at, 3, "\"y\xff\"");
  write_text(directory / "m.sg", text);
  const Outcome json = run_tool({"run", directory / "m.sg", "--set", "x=[1,2]", "--json"});
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(json.out, "{\"y\\\\xff\":5.0}\n");
  EXPECT_EQ(run_tool({"run", directory / "m.sg", "--set", "x=[1,2]"}).out, "y\\xff = f32[] {5}\n");
  write_npz(directory / "d.npz", {{"x", Literal::scalar(DType::F64, 1e300).reshaped({1})}});
  refused({square, "--set", "x=@" + (directory / "d.npz")}, "x: element 0 is 1e+300, which does not fit f32");
}

TEST(ShowVerb, AReaderThatHasSeenEnoughEndsItQuietly) {
  const Outcome outcome = run_shell("$STEPGRAPH show gpt | head -1");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "stepgraph 1\n");
  EXPECT_EQ(outcome.err, "");
}

}  // namespace run_show_test
}  // namespace stepgraph::testing
