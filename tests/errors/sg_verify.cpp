// SPDX-License-Identifier: Apache-2.0
// The verifier against modules that no text can hold, and against text with every number and every word made wrong. Messages that text can cause are in
// tests/text/verify.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/verify.h"
#include "tests/support/effort.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace sg_verify_test {

Module small_module() {
  return parse_module(
      "stepgraph 1\nmodule m\n"
      "graph @f gradient @g {\n  input %0 : f32[2]\n  %1 = neg(%0) : f32[2]\n  output %1\n}\n"
      "graph @g {\n  input %0 : f32[2]\n  input %1 : f32[2]\n  input %2 : f32[2]\n  output %2\n}\n"
      "graph @main {\n  input %0 : f32[2] parameter \"w\"\n  %1 = call(%0, graph=@f) : f32[2]\n  %2 = add(%0, %1) : f32[2]\n  output %2 new_state \"w\"\n}\n"
      "entry main @main\n");
}

struct Case {
  std::string message;
  std::function<void(Module&)> spoil;
};

TEST(SgVerify, IdsThatMeanNothing) {
  ASSERT_NO_THROW(verify(small_module()));
  const auto main = [](Module& module) -> Graph& { return module.graphs[2]; };
  const std::vector<Case> cases = {
      {"input with value id 9 is not defined before its use; in %2 = add(%0, %?) of graph @main", [&](Module& m) { main(m).nodes[1].inputs[1] = {9}; }},
      {"input with value id -1 is not defined before its use", [&](Module& m) { main(m).nodes[1].inputs[1] = {-1}; }},
      {"input with value id 2 is not defined before its use", [&](Module& m) { main(m).nodes[0].inputs[0] = {2}; }},
      {"value id 0 is defined twice", [&](Module& m) { main(m).nodes[0].results[0] = {0}; }},
      {"value id 7 is out of range", [&](Module& m) { main(m).nodes[0].results[0] = {7}; }},
      {"value id -1 is out of range", [&](Module& m) { main(m).inputs[0].value = {}; }},
      {"value id 1 names another node as its producer", [&](Module& m) { main(m).values[1].node = 1; }},
      {"value id 0 names another node as its producer", [&](Module& m) { main(m).values[0].node = 0; }},
      {"value id 3 is neither an input nor the result of a node", [&](Module& m) { main(m).values.push_back({}); }},
      {"output with value id 3 is not defined", [&](Module& m) { main(m).outputs[0].value = {3}; }},
      {"call names no graph of the module", [&](Module& m) { std::get<Call>(main(m).nodes[0].op).graph = {3}; }},
      {"call names no graph of the module", [&](Module& m) { std::get<Call>(main(m).nodes[0].op).graph = {-2}; }},
      {"graph @main calls itself, through @main", [&](Module& m) { std::get<Call>(main(m).nodes[0].op).graph = {2}; }},
      {"the gradient names no graph of the module; in graph @f", [&](Module& m) { m.graphs[0].gradient = GraphId{5}; }},
      {"entry 'main' names no graph of the module", [&](Module& m) { m.entries[0].graph = {3}; }},
      {"entry 'main' is defined twice", [&](Module& m) { m.entries.push_back(m.entries[0]); }},
      {"add: found 2 results, wanted 1", [&](Module& m) {
         main(m).values.push_back({{}, 1});
         main(m).nodes[1].results.push_back({3});
       }},
  };
  for (const Case& one : cases) {
    Module module = small_module();
    one.spoil(module);
    try {
      verify(module);
      ADD_FAILURE() << "no error, wanted: " << one.message;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(one.message), std::string::npos) << "found:  " << error.what() << "\nwanted: " << one.message;
    }
  }
}

TEST(SgVerify, CallsMayNestButNotWithoutBound) {
  const auto chain = [](int graphs) {
    std::string text = "stepgraph 1 module m graph @g0 { }";
    for (int i = 1; i < graphs; ++i) text += " graph @g" + std::to_string(i) + " { call(graph=@g" + std::to_string(i - 1) + ") }";
    return parse_module(text + " entry main @g" + std::to_string(graphs - 1));
  };
  EXPECT_NO_THROW(verify(chain(1000)));
  EXPECT_THROW(verify(chain(1001)), UserError);
  EXPECT_THROW(verify(chain(20000)), UserError);
}

std::vector<std::string> programs() {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(testing::source_root()) / "tests" / "text" / "form")) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    result.push_back(text.str().substr(0, text.str().find("\n---\n") + 1));
  }
  return result;
}

/// Accepted, or refused by a UserError: anything else ends the test.
void read_and_verify(const std::string& text) {
  try {
    verify(parse_module(text));
  } catch (const UserError&) {
  }
}

TEST(SgVerify, EveryNumberMayBeExtreme) {
  const auto texts = programs();
  ASSERT_GE(texts.size(), 8u);
  for (const std::string& text : texts) {
    SCOPED_TRACE(text.substr(0, 60));
    for (size_t begin = text.find("module"); begin < text.size(); ++begin) {
      if (std::isdigit(static_cast<unsigned char>(text[begin])) == 0 || std::isalnum(static_cast<unsigned char>(text[begin - 1])) != 0) continue;
      size_t end = begin;
      while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
      const std::vector<std::string> numbers = {"0", "-1", "1", "3", "1000000", "4611686018427387904", "9223372036854775807", "-9223372036854775808"};
      const size_t step = testing::is_sanitized ? 3 : 1;
      for (size_t i = begin % step; i < numbers.size(); i += step)
        ASSERT_NO_THROW(read_and_verify(text.substr(0, begin) + numbers[i] + text.substr(end))) << "number at " << begin << " -> " << numbers[i];
      begin = end;
    }
  }
}

TEST(SgVerify, EveryWordMayBeAnother) {
  const std::vector<std::string> words = {"f32", "i64", "bool", "bf16", "n", "input", "matmul", "call", "true", "data", "[", "]", "]]", "[]", "%0", "{}", ""};
  for (const std::string& text : programs()) {
    SCOPED_TRACE(text.substr(0, 60));
    const size_t step = testing::is_sanitized ? 29 : 4;  // a part of all pairs, to save time
    size_t turn = 0;
    for (size_t begin = text.find("module"); begin < text.size(); ++turn) {
      size_t end = begin;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
      if (end == begin) ++end;
      for (size_t i = turn % step; i < words.size(); i += step)
        ASSERT_NO_THROW(read_and_verify(text.substr(0, begin) + words[i] + text.substr(end))) << "at " << begin << " -> " << words[i];
      begin = end;
    }
  }
}

}  // namespace sg_verify_test
}  // namespace stepgraph
