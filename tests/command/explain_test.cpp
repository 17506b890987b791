// SPDX-License-Identifier: Apache-2.0
// Seeing what the engine does: stepgraph explain, --tap, --trace, and the back ends of run and check.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/train/data/arrays.h"
#include "tests/command/tool.h"

namespace stepgraph::testing {
namespace explain_test {

using Json = nlohmann::json;

const Arguments small_gpt = {"gpt", "-o", "layers=2", "-o", "width=16", "-o", "heads=2", "-o", "context=8", "-o", "vocabulary=11", "--batch", "4", "--threads", "2"};

class Seeing : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  }
  static std::string said(const Arguments& arguments, int code = 0) {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
    return outcome.out;
  }
  static void expect_narrow(const std::string& text) {
    std::stringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 160u) << line;
  }
};

TEST_F(Seeing, Fusion) {
  const std::string text = said(Arguments{"explain", "fusion"} + small_gpt);
  expect_narrow(text);
  for (const char* part : {"entry step: ", "memory traffic ", "a kernel an operation ", "by phase:", "  backward ", "instructions, those that save most:", "h.1.ln_1", "not fused, stored by one kernel and read by another:"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const Json json = Json::parse(said(Arguments{"explain", "fusion", "--json", "--entry", "step"} + small_gpt));
  ASSERT_EQ(json["entries"].size(), 1u);
  int64_t moved = 0, apart = 0;
  bool has_forward = false;
  for (const Json& row : json["entries"][0]["instructions"]) {
    moved += row["read"].get<int64_t>() + row["written"].get<int64_t>(), apart += row["apart"].get<int64_t>();
    for (const Json& op : row["ops"]) has_forward = has_forward || (op["phase"] == "forward" && op["layer"] == "transformer.h.0.attn" && op["op"] == "attention");
  }
  EXPECT_TRUE(has_forward);
  EXPECT_LT(2 * moved, apart);  // more than half is saved
  for (const Json& value : json["entries"][0]["not_fused"]) EXPECT_FALSE(value["why"].get<std::string>().empty());
  // With a kernel an operation nothing is saved.
  const Json eager = Json::parse(said(Arguments{"explain", "fusion", "--json", "--entry", "eval", "--backend", "eager"} + small_gpt));
  for (const Json& row : eager["entries"][0]["instructions"]) EXPECT_EQ(row["ops"].size(), 1u) << row;
}

TEST_F(Seeing, MemoryAndItsMap) {
  const TemporaryDirectory directory;
  const std::string map = directory / "memory.svg";
  const std::string text = said(Arguments{"explain", "memory", "--map", map} + small_gpt);
  expect_narrow(text);
  for (const char* part : {"states ", "optimizer_state", "entry step: arena ", "at least ", "alive at the peak:", "forward keeps ", "h.1.attn", "map     "})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const std::string svg = read_text(map);
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 80);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  for (const char* part : {">peak</text>", "<title>transformer.h.0.attn/attention", "forward", "backward"}) EXPECT_NE(svg.find(part), std::string::npos) << part;
  const Json json = Json::parse(said(Arguments{"explain", "memory", "--json"} + small_gpt));
  for (const Json& entry : json["entries"]) {
    int64_t at_peak = 0, end = 0, kept = 0;
    for (const Json& value : entry["values"]) {
      if (value["at_peak"].get<bool>()) at_peak += (value["bytes"].get<int64_t>() + 63) / 64 * 64;
      if (value["kept"].get<bool>()) kept += value["bytes"].get<int64_t>();
      end = std::max(end, value["offset"].get<int64_t>() + value["bytes"].get<int64_t>());
    }
    EXPECT_EQ(at_peak, entry["lower_bound_bytes"].get<int64_t>()) << entry["entry"];
    EXPECT_EQ(kept, entry["kept_bytes"].get<int64_t>());
    EXPECT_LE(entry["lower_bound_bytes"].get<int64_t>(), entry["arena_bytes"].get<int64_t>());
    EXPECT_EQ((end + 63) / 64 * 64, entry["used_bytes"].get<int64_t>());
    EXPECT_LE(end, entry["arena_bytes"].get<int64_t>());
    EXPECT_EQ(kept > 0, entry["entry"] == "step");
  }
}

TEST_F(Seeing, Evaluate) {
  EXPECT_EQ(said(Arguments{"explain", "evaluate", "--entry", "step"} + small_gpt), "entry step: every operation has a kernel or a call\n");
  const TemporaryDirectory directory;
  write_text(directory / "sort.sg", R"(stepgraph 1
module sample

symbol n in [1, 1000]

graph @main {
  input %x : f32[n] batch "x"
  %i = argsort(%x, dim=0, descending=false) : i64[n]
  %j = argsort(%x, dim=0, descending=true) : i64[n]
  output %i user_output "up"
  output %j user_output "down"
}

entry main @main
)");
  const std::string text = said({"explain", "evaluate", directory / "sort.sg"});
  expect_narrow(text);
  EXPECT_NE(text.find("entry main: 2 of 2 instructions run in the interpreter"), std::string::npos) << text;
  EXPECT_NE(text.find("no kernel for this operation"), std::string::npos) << text;
  const Json json = Json::parse(said({"explain", "evaluate", directory / "sort.sg", "--json"}));
  EXPECT_EQ(json["entries"][0]["evaluated"], 2);
  EXPECT_EQ(json["entries"][0]["rows"][0]["count"], 2);
}

TEST_F(Seeing, Refusals) {
  for (const auto& [arguments, message] : std::vector<std::pair<Arguments, std::string>>{
           {{"explain", "fusoin", "mlp"}, "there is no subject 'fusoin'; nearest are fusion"},
           {{"explain", "fusion"}, "name a model of the zoo"},
           {{"explain", "fusion", "mlp", "--map", "x.svg"}, "--map has no use with explain fusion"},
           {{"explain", "memory", "mlp", "--entry", "stop"}, "the plan has no entry 'stop'; nearest are step"},
           {{"explain", "memory", "mlp", "--map", "/nowhere/x.svg"}, "/nowhere/x.svg"},
           {{"explain", "evaluate", "mlp", "--backend", "reference"}, "the reference back end has no plan"},
           {{"check"}, "check wants a folder with a recorded model, or a model"},
           {{"check", "mlp", "--backend", "reference"}, "wanted --backend eager, segment or full"},
           {{"check", "mlp", "--bisect", "--mesh", "data=2"}, "on one device, found mesh data=2"},
           {{"check", "tests/samples/mlp_gelu", "--bisect", "--mesh", "data=2"}, "on one device, found mesh data=2"},
           {{"run", "examples/square.sg", "--set", "x=[1]", "--backend", "fast"}, "--backend: found 'fast', wanted eager, segment, full or reference"},
           {{"run", "examples/square.sg", "--set", "x=[1]", "--threads", "-1"}, "--threads: found -1"},
           {{"run", "examples/square.sg", "--set", "x=[1]", "--tap", "nothing"}, "no value of the program is named 'nothing'; nearest are "},
           {{"run", "examples/square.sg", "--set", "x=[1]", "--tap-out", "x.safetensors"}, "--tap-out has no use without --tap"},
           {{"run", "examples/square.sg", "--set", "x=[1]", "--tap", "*", "--tap-out", "x.txt"}, "wanted a name that ends in .safetensors"},
           {{"train", "-m", "mlp", "--tap", "*", "--steps", "1"}, "without a file for the values (--tap-out)"}}) {
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.code, 2) << message << outcome.out;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << message << "\n" << outcome.err;
  }
}

TEST_F(Seeing, RunUnderEveryBackend) {
  const Arguments square = {"run", "examples/square.sg", "--set", "x=[1, 2, 3]", "--grad", "x"};
  const std::string wanted = said(square);
  for (const char* backend : {"eager", "segment", "full", "inductor", "reference"}) {
    EXPECT_EQ(said(square + Arguments{"--backend", backend, "--threads", "2"}), wanted) << backend;
    EXPECT_EQ(said(square + Arguments{"--backend", backend, "--mesh", "data=3", "--shard", "x={data}"}), wanted) << backend;
  }
}

TEST_F(Seeing, TapsOfRunAndTrain) {
  const TemporaryDirectory directory;
  const Arguments square = {"run", "examples/square.sg", "--set", "x=[1, 2, 3]"};
  for (const char* backend : {"full", "reference"}) {
    const std::string text = said(square + Arguments{"--backend", backend, "--tap", "*"});
    EXPECT_TRUE(text.starts_with(said(square))) << text;
    EXPECT_NE(text.find("\ntap("), std::string::npos) << text;
  }
  said(square + Arguments{"--tap", "*", "--tap-out", directory / "run.safetensors"});
  EXPECT_GE(read_safetensors(directory / "run.safetensors").arrays.size(), 1u);
  const Arguments train = {"train", "--config", "examples/digits.toml", "--steps", "2", "--batch", "8", "--eval-every", "-1", "--json"};
  const auto losses = [](const std::string& lines) { return lines.substr(0, lines.find("\"samples_per_s\"")); };
  const std::string plain = said(train), tapped = said(train + Arguments{"--tap", "forward/*,backward/*", "--tap-out", directory / "train.safetensors"});
  EXPECT_EQ(losses(tapped), losses(plain));
  const Safetensors taps = read_safetensors(directory / "train.safetensors");
  EXPECT_GT(taps.arrays.size(), 10u);
  for (const auto& [name, value] : taps.arrays) EXPECT_TRUE(name.starts_with("forward/") || name.starts_with("backward/")) << name;
}

TEST_F(Seeing, CheckUnderFullAndBisect) {
  const std::string table = said({"check", "tests/samples/mlp_gelu", "--backend", "full", "--threads", "2"});
  EXPECT_NE(table.find("mlp_gelu: model.pt2 agrees in all "), std::string::npos) << table;
  const std::string model = said(Arguments{"check"} + small_gpt);
  EXPECT_NE(model.find("entry step under full agrees in all "), std::string::npos) << model;
  EXPECT_NE(said(Arguments{"check", "--bisect"} + small_gpt).find("no value is off: "), std::string::npos);
  EXPECT_EQ(said({"check", "--threads", "2", "--backend", "full", "tests/samples/mlp_gelu"}), table);  // a flag takes one word
  EXPECT_NE(said({"check", "tests/samples/mlp_gelu", "--bisect"}).find("no value is off: "), std::string::npos);
  EXPECT_NE(said({"check", "examples/square.sg"}).find("entry main under full agrees"), std::string::npos);
  const Json json = Json::parse(said(Arguments{"check", "--bisect", "--json"} + small_gpt));
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["values"], json["compared"]);
}

TEST_F(Seeing, TraceTellsWhatWasReached) {
  const TemporaryDirectory directory;
  const std::string path = directory / "trace.json";
  said({"train", "--config", "examples/digits.toml", "--steps", "2", "--batch", "8", "--eval-every", "-1", "--trace", path, "--threads", "2"});
  const Json trace = Json::parse(read_text(path));
  int64_t slices = 0, with_bytes = 0, with_flops = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "meet") continue;
    ++slices;
    const Json& args = event["args"];
    with_bytes += args.contains("bytes"), with_flops += args.contains("flops");
    if (!args.contains("GB/s")) continue;
    EXPECT_NEAR(args["GB/s"].get<double>() * event["dur"].get<double>() * 1000, args["bytes"].get<double>(), args["bytes"].get<double>() * 0.01 + 2000);
  }
  EXPECT_GT(slices, 20);
  EXPECT_EQ(with_bytes, slices);
  EXPECT_GT(with_flops * 2, slices);
}

}  // namespace explain_test
}  // namespace stepgraph::testing
