// SPDX-License-Identifier: Apache-2.0
// The compile cache as a user meets it: train tells where its code came from; stepgraph cache ls, explain, verify, clear.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "stepgraph/compile/codegen/emit_form.h"
#include "tests/command/json_lines.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace cache_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Arguments mlp(const std::string& verb) {
  return {verb, "--model",      "mlp", "-o",        "hidden=16", "--data-kind", "digits", "--data", source_file("data/digits.csv"), "--steps",
          "3",  "--eval-every", "-1",  "--threads", "2"};
}
Json last_json(const Outcome& outcome) {
  std::string last = outcome.out.substr(0, outcome.out.find_last_not_of('\n') + 1);
  return Json::parse(last.substr(last.rfind('\n') + 1), nullptr, false);
}
std::vector<std::string> losses(const Outcome& outcome) {
  std::vector<std::string> found;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    if (const Json json = Json::parse(line, nullptr, false); json.contains("loss")) found.push_back(json["loss"].dump());
  return found;
}

class CacheCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  }
  Arguments cached() const { return {"--cache", folder_ / "c"}; }
  Outcome cache(const std::string& verb, const Arguments& more = {}) const { return run_tool(Arguments{"cache", verb} + cached() + more); }
  Json explained(const Arguments& more) const {
    const Outcome outcome = run_tool(Arguments{"cache", "explain"} + cached() + more + Arguments{"--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return last_json(outcome);
  }
  std::vector<std::string> files(const std::string& kind) const {
    std::vector<std::string> found;
    for (const auto& file : fs::directory_iterator(folder_ / ("c/" + kind))) found.push_back(file.path());
    return found;
  }
  TemporaryDirectory folder_;
};

TEST_F(CacheCommand, TrainTellsWhereItsCodeCameFrom) {
  const Outcome without = run_tool(mlp("train") + Arguments{"--json", "--cache", "off"});
  ASSERT_EQ(without.code, 0) << without.err;
  ASSERT_EQ(losses(without).size(), 3U);
  const Outcome cold = run_tool(mlp("train") + cached() + Arguments{"--json"});
  const Outcome warm = run_tool(mlp("train") + cached() + Arguments{"--json"});
  EXPECT_EQ(losses(cold), losses(without));
  EXPECT_EQ(losses(warm), losses(without));
  const Json made = last_json(cold)["compile"]["plans"][0], found = last_json(warm)["compile"]["plans"][0];
  EXPECT_EQ(made["cached"], false);
  EXPECT_EQ(made["why_made"], "the cache has nothing like it");
  EXPECT_EQ(made["forms_made"], made["forms"]);
  EXPECT_EQ(found["cached"], true);
  EXPECT_EQ(found["forms"], made["forms"]);
  EXPECT_EQ(found["forms_made"], 0);
  EXPECT_FALSE(last_json(without)["compile"]["plans"][0].contains("why_made"));

  const Outcome text = run_tool(mlp("train") + cached());
  EXPECT_NE(text.out.find("cache   the plan, with the code of its "), std::string::npos) << text.out;
  const Outcome other = run_tool(mlp("train") + cached() + Arguments{"--batch", "48"});
  EXPECT_NE(other.out.find("cache   no plan (largest: was batch=32, now batch=48) · code of 0 forms made"), std::string::npos) << other.out;
  EXPECT_EQ(run_tool(mlp("train") + Arguments{"--cache", "off"}).out.find("cache  "), std::string::npos);
}

TEST_F(CacheCommand, ExplainNamesWhatDiffers) {
  Arguments job = mlp("");
  job.erase(job.begin());
  EXPECT_EQ(explained(job)["wanted"].back()["cached"], false);
  ASSERT_EQ(run_tool(mlp("train") + cached()).code, 0);
  EXPECT_EQ(explained(job)["wanted"].back()["cached"], true);
  const Json other = explained(job + Arguments{"--backend", "eager", "--threads", "1"})["wanted"].back();
  EXPECT_EQ(other["cached"], false);
  ASSERT_EQ(other["differences"].size(), 2U);
  EXPECT_EQ(other["differences"][0], (Json{{"component", "backend"}, {"was", "full"}, {"now", "eager"}}));
  EXPECT_EQ(other["differences"][1], (Json{{"component", "target.threads"}, {"was", "2"}, {"now", "1"}}));
  EXPECT_TRUE(other["components"].contains("stepgraph"));
  const Outcome text = run_tool(Arguments{"cache", "explain"} + cached() + job + Arguments{"--threads", "1"});
  EXPECT_NE(text.out.find("plan     is not in the cache; the nearest one (mlp: "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\n  target.threads: was 2, now 1\n"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("backend"), std::string::npos) << text.out;
}

TEST_F(CacheCommand, ListVerifyAndClear) {
  const Outcome nothing = cache("ls");
  EXPECT_EQ(nothing.code, 0) << nothing.err;
  EXPECT_NE(nothing.out.find(": 0 entries"), std::string::npos) << nothing.out;
  EXPECT_EQ(cache("verify").code, 0);
  ASSERT_EQ(run_tool(mlp("train") + cached()).code, 0);
  const Json listed = last_json(cache("ls", {"--json"}));
  EXPECT_EQ(listed["entries"].size(), files("plan").size() + files("form").size() + files("module").size());
  EXPECT_EQ(listed["limit_bytes"], int64_t{2} << 30);
  const Outcome text = cache("ls");
  EXPECT_NE(text.out.find("plan "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("code of " + std::to_string(files("form").size()) + " forms"), std::string::npos) << text.out;
  EXPECT_GT(cache("ls", {"--all"}).out.size(), text.out.size());
  EXPECT_EQ(last_json(cache("verify", {"--json"}))["problems"].size(), 0U);

  const std::string damaged = files("form")[0];
  fs::resize_file(damaged, fs::file_size(damaged) - 1);
  const Outcome verified = cache("verify");
  EXPECT_EQ(verified.code, 1);
  EXPECT_NE(verified.out.find(damaged + ": cache entry is cut off"), std::string::npos) << verified.out;
  EXPECT_NE(verified.out.find("1 damaged"), std::string::npos) << verified.out;
  EXPECT_EQ(last_json(cache("verify", {"--json"}))["problems"][0]["path"], damaged);

  const Json cleared = last_json(cache("clear", {"--json"}));
  EXPECT_EQ(cleared["entries"], listed["entries"].size());
  EXPECT_EQ(last_json(cache("ls", {"--json"}))["entries"].size(), 0U);
}

TEST_F(CacheCommand, DamageIsOneWarning) {
  ASSERT_EQ(run_tool(mlp("train") + cached()).code, 0);
  const std::string plan = files("plan").at(0);
  fs::resize_file(plan, 100);
  const Outcome outcome = run_tool(mlp("train") + cached());
  EXPECT_EQ(outcome.code, 0);
  const size_t at = outcome.err.find("warning compile cache: " + plan + ": ");
  EXPECT_NE(at, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("warning", at + 1), std::string::npos) << outcome.err;
  EXPECT_EQ(run_tool(mlp("train") + cached()).err.find("warning"), std::string::npos);
}

TEST_F(CacheCommand, StaysWithinItsLimit) {
  ASSERT_EQ(run_tool(mlp("train") + cached() + Arguments{"--cache-limit", "40kB"}).code, 0);
  EXPECT_LE(last_json(cache("ls", {"--json"}))["bytes"], 40'000);
}

TEST_F(CacheCommand, WhereNothingCanBeWrittenTrainingGoesOn) {
  write_text(folder_ / "file", "");
  const Outcome outcome = run_tool(mlp("train") + Arguments{"--cache", folder_ / "file/below"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("warning compile cache: cannot "), std::string::npos) << outcome.err;
}

TEST_F(CacheCommand, IsWhereTheUserSays) {
  const std::string job =
      "$STEPGRAPH train --model mlp -o hidden=4 --data-kind digits --data '" + source_file("data/digits.csv") + "' --steps 1 --eval-every -1";
  const auto has_plan = [&](const std::string& place) { return fs::exists(folder_ / place) && !fs::is_empty(folder_ / place); };
  ASSERT_EQ(run_shell("HOME='" + folder_.path() + "' STEPGRAPH_CACHE='" + (folder_ / "own") + "' " + job).code, 0);
  EXPECT_TRUE(has_plan("own/plan"));
  ASSERT_EQ(run_shell("unset STEPGRAPH_CACHE; HOME='" + folder_.path() + "' XDG_CACHE_HOME='" + (folder_ / "xdg") + "' " + job).code, 0);
  EXPECT_TRUE(has_plan("xdg/stepgraph/plan"));
  EXPECT_FALSE(fs::exists(folder_ / ".cache"));
  ASSERT_EQ(run_shell("unset STEPGRAPH_CACHE XDG_CACHE_HOME; HOME='" + folder_.path() + "' " + job).code, 0);
  EXPECT_TRUE(has_plan(".cache/stepgraph/plan"));
  write_text(folder_ / "job.toml", "[train]\ncache = \"" + (folder_ / "job") + "\"\n");
  ASSERT_EQ(run_shell(job + " --config '" + (folder_ / "job.toml") + "'").code, 0);
  EXPECT_TRUE(has_plan("job/plan"));
}

TEST_F(CacheCommand, ErrorsSayWhatIsWanted) {
  const auto refused = [](const Arguments& arguments, const std::string& message) {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err, "stepgraph: " + message + "\n");
  };
  refused({"cache"}, "no verb is given; see stepgraph cache --help");
  refused({"cache", "lst"}, "unknown verb 'lst', the nearest is ls; see stepgraph cache --help");
  refused({"cache", "ls", "--jsn"}, "unknown option '--jsn', the nearest is --json; see stepgraph cache ls --help");
  refused({"cache", "ls"}, "the compile cache is off; wanted a folder: --cache DIR, or STEPGRAPH_CACHE");
  refused({"cache", "explain", "--cache", "x"}, "no model is given");
  refused({"cache", "explain", "mlp", "--cache", "x", "--backend", "reference"},
          "the reference back end compiles nothing, wanted --backend eager, segment or full");
  refused(mlp("train") + Arguments{"--cache-limit", "2 boxes"}, "--cache-limit: found '2 boxes', wanted bytes, as 2GiB or 500MB");
  for (const std::string verb : {"ls", "explain", "verify", "clear"})
    EXPECT_NE(run_tool({"cache", verb, "--help"}).out.find("--json"), std::string::npos) << verb;
  EXPECT_NE(run_tool({"cache", "--help"}).out.find("Examples:"), std::string::npos);
}

}  // namespace cache_test
}  // namespace stepgraph::testing
