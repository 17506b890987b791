// SPDX-License-Identifier: Apache-2.0
// stepgraph compile, and the plans that it writes in train and run.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "stepgraph/compile/codegen/emit_form.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace compile_test {

using Json = nlohmann::json;

const Arguments model = {"--model", "mlp", "-o", "hidden=16", "--threads", "2"};
Arguments trained(const Arguments& more = {}) {
  return Arguments{"train", "--data-kind", "digits", "--data", source_file("data/digits.csv"), "--steps", "3", "--eval-every", "-1", "--json"} + model + more;
}

class CompileCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  }
  Outcome compile(const Arguments& more = {}) const { return run_tool(Arguments{"compile", "--out", plan()} + model + more); }
  std::string plan() const { return folder_ / "a.plan"; }
  void expect_refused(const Arguments& arguments, const std::string& part) const {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
  TemporaryDirectory folder_;
};

TEST_F(CompileCommand, TellsWhatItDidAndMade) {
  const Outcome text = compile();
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char* part :
       {"differentiate ", "partition ", "flatten ", "lower ", "emit ", "verify ", "entry   step ", " instructions, arena ", "states  ", "plan    "})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  const Outcome outcome = compile({"--json"});
  const Json json = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.out << outcome.err;
  ASSERT_EQ(json["entries"].size(), 3U);
  EXPECT_GT(json["entries"][1]["instructions"], 0);
  EXPECT_GT(json["forms"], 0);
  EXPECT_EQ(json["forms_made"], json["forms"]);
  // Weights and biases of 64 x 16 and 16 x 10, and two moments of each; the number of steps.
  EXPECT_EQ(json["state_bytes"], 3 * 4 * (64 * 16 + 16 + 16 * 10 + 10));
  EXPECT_GT(json["passes"].size(), 10U);
}

TEST_F(CompileCommand, TrainRunsItsPlan) {
  ASSERT_EQ(compile().code, 0);
  const Outcome plain = run_tool(trained()), given = run_tool(trained({"--plan", plan()}));
  ASSERT_EQ(given.code, 0) << given.err;
  EXPECT_EQ(read_training(given.out).losses(), read_training(plain.out).losses());
  EXPECT_EQ(read_training(given.out).losses().size(), 3U);
  // Memory for other batches is planned anew.
  for (const std::string rows : {"8", "64"}) {
    const Outcome other = run_tool(trained({"--plan", plan(), "--batch", rows}));
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_EQ(read_training(other.out).losses(), read_training(run_tool(trained({"--batch", rows})).out).losses());
  }
}

TEST_F(CompileCommand, AnotherPlanIsRefusedByWhatDiffers) {
  ASSERT_EQ(compile().code, 0);
  const auto refused = [&](const Arguments& more, const std::string& part) { expect_refused(trained({"--plan", plan()}) + more, part); };
  refused({"-o", "hidden=17"}, plan() + ": the plan does not fit what is to be run: module: was ");
  refused({"--lr", "0.5"}, "to be run: module: was ");
  refused({"--threads", "1"}, "to be run: target.threads: was 2, now 1\n");
  refused({"--backend", "eager"}, "to be run: backend: was full, now eager\n");
  refused({"--backend", "reference"}, "plan: the reference back end runs none");
  refused({"--plan", source_file("LICENSE")}, "is no plan file");
  const std::string bytes = read_text(plan());
  write_text(plan(), bytes.substr(0, bytes.size() - 1));
  refused({}, plan() + ": plan file is cut off: section made_of has ");
  std::string damaged = bytes;
  damaged[bytes.size() / 2] ^= 1;
  write_text(plan(), damaged);
  refused({}, plan() + ": plan file is damaged: section ");
}

TEST_F(CompileCommand, RunTakesThePlanOfAnEntry) {
  const std::string program = folder_ / "a.sg";
  write_text(program, R"(stepgraph 1
module "m"
symbol n in [1, 64]

graph @main {
  input %x : f32[n] batch "x"
  %y = mul(%x, %x) : f32[n]
  output %y user_output "y"
}

entry main @main
)");
  const Outcome shown = run_tool({"run", program, "--set", "x=[1,2,3]"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  const Outcome made = run_tool({"compile", program, "--out", plan()});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome given = run_tool({"run", program, "--set", "x=[1,2,3]", "--plan", plan()});
  EXPECT_EQ(given.code, 0) << given.err;
  EXPECT_EQ(given.out, shown.out);
  expect_refused({"run", program, "--set", "x=[1,2,3]", "--plan", plan(), "--dtype", "f64"}, "the plan does not fit what is to be run: module: was ");
  expect_refused({"run", program, "--set", "x=[1,2,3]", "--plan", plan(), "--mesh", "data=3"}, "--plan: a plan of stepgraph compile is run on one device");
}

TEST_F(CompileCommand, ErrorsSayWhatIsWanted) {
  expect_refused({"compile"}, "no model is given");
  expect_refused({"compile", "mlp", "--backend", "reference"}, "the reference back end has no plan");
  expect_refused({"compile", "mlp", "--plan", "x"}, "--plan: has no use where a plan is made; the file that is written is --out");
  expect_refused({"compile", "mlp", "--entry", "step"}, "--entry: mlp is trained as a whole");
  expect_refused({"compile", "mlp", "--out", folder_ / "none/a.plan"}, "cannot open");
  EXPECT_NE(run_tool({"compile", "--help"}).out.find("Examples:"), std::string::npos);
}

}  // namespace compile_test
}  // namespace stepgraph::testing
