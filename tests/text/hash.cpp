// SPDX-License-Identifier: Apache-2.0
// The module hash: what it must not see, and what it must.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ir/text.h"

namespace stepgraph {
namespace hash_test {

/// A program with a bit of everything.
const std::string base = R"(stepgraph 1
module m stage logical
symbol batch in [1, 64]
symbol width in [1, 64]

graph @scaled composite "scaled" gradient @scaled_backward {
  input %0 : f32[batch, width]
  %1 = constant(value=f32[] {2}) : f32[]
  %2 = broadcast(%1, shape=[batch, width]) : f32[batch, width]
  %3 = mul(%0, %2) : f32[batch, width]
  output %3
}

graph @scaled_backward {
  input %0 : f32[batch, width]
  input %1 : f32[batch, width]
  input %2 : f32[batch, width]
  %3 = call(%2, graph=@scaled) : f32[batch, width]
  output %3
}

graph @noise {
  input %0 : i64[]
  %1 = constant(value=i64[] {3}) : i64[]
  %2 = fold_in(%0, %1) : i64[]
  %3 = random_uniform(%2, shape=[batch, width], global_shape=[batch, width], starts=[0, 0]) : f32[batch, width]
  output %3
}

graph @main {
  input %0 : f32[batch, width] batch "x"
  input %1 : f32[batch, width] parameter "w"
  input %2 : i64[] seed
  input %3 : i64[] step
  %4 = exp(%0) : f32[batch, width] at "a.cpp:3" scope "h.0"
  %5 = neg(%1) : f32[batch, width]
  %6 = add(%4, %5) : f32[batch, width]
  %7 = call(%6, graph=@scaled) : f32[batch, width]
  %8 = fold_in(%2, %3) : i64[]
  %9 = call(%8, graph=@noise) : f32[batch, width]
  %10 = add(%7, %9) : f32[batch, width]
  output %10 new_state "w"
}

graph @second {
  input %0 : f32[batch, width] batch "x"
  output %0
}

entry main @main
entry second @second
)";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

std::string hash(const std::string& text) { return module_hash(parse_module(text)).text(); }

TEST(ModuleHash, DoesNotSeeNamesOrderOrDeadNodes) {
  const std::string wanted = hash(base);
  const std::vector<std::pair<std::string, std::string>> same = {
      {"module m", "module another"},
      {"@scaled ", "@other "},                                        // graphs; @scaled_backward is another one
      {"batch", "n"},                                                 // a symbol (and a role, put back below)
      {" at \"a.cpp:3\" scope \"h.0\"", ""},                          // places and scopes
      {"  %4 = exp(%0) : f32[batch, width] at \"a.cpp:3\" scope \"h.0\"\n  %5 = neg(%1) : f32[batch, width]\n",
       "  %5 = neg(%1) : f32[batch, width]\n  %4 = exp(%0) : f32[batch, width]\n"},
      {"  %5 = neg", "  %dead = tanh(%0) : f32[batch, width]\n  %5 = neg"},
      {"entry main @main\nentry second @second\n", "entry second @second\nentry main @main\n"},
      {"symbol batch in [1, 64]\nsymbol width in [1, 64]\n", "symbol unused\nsymbol width in [1, 64]\nsymbol batch in [1, 64]\n"},
      {"entry main", "graph @unused {\n}\nentry main"},
  };
  for (const auto& [from, to] : same) {
    std::string text = replaced(base, from, to);
    if (from == "batch") text = replaced(text, " n \"x\"", " batch \"x\"");
    if (from == "@scaled ") text = replaced(text, "graph=@scaled)", "graph=@other)");
    EXPECT_EQ(hash(text), wanted) << from << " -> " << to;
  }
}

TEST(ModuleHash, SwappedNamesOfSymbolsDeclaredAlikeAreTheSame) {
  std::string text = replaced(base, "batch", "height");
  text = replaced(text, " height \"x\"", " batch \"x\"");
  text = replaced(text, "width", "batch2");
  text = replaced(text, "height", "width");
  EXPECT_EQ(hash(replaced(text, "batch2", "a")), hash(base));
}

TEST(ModuleHash, DerivedSymbolsAreWhatTheyStandFor) {
  const std::string text = R"(stepgraph 1
module m
symbol n in [1, 64]
symbol m in [1, 64]
symbol half = floordiv(n, 2)
symbol rest = n - half
graph @main {
  input %0 : f32[half, m]
  input %1 : f32[rest]
  input %2 : f32[n]
  output %0
}
entry main @main
)";
  const std::string renamed = replaced(replaced(text, "half", "a"), "rest", "b");
  EXPECT_EQ(hash(renamed), hash(text));
  EXPECT_NE(hash(replaced(text, "floordiv(n, 2)", "floordiv(n, 3)")), hash(text));
  EXPECT_NE(hash(replaced(text, "floordiv(n, 2)", "floordiv(m, 2)")), hash(text));
  EXPECT_NE(hash(replaced(text, "f32[rest]", "f32[half]")), hash(text));
}

TEST(ModuleHash, SeesAllThatChangesTheMeaning) {
  const std::vector<std::pair<std::string, std::string>> different = {
      {"stage logical", "stage local"},
      {"stage logical", "stage logical\nmesh data=2"},
      {"batch in [1, 64]", "batch in [1, 65]"},
      {"batch in [1, 64]", "batch in [1, 64] multiple 2"},
      {"value=f32[] {2}", "value=f32[] {3}"},
      {"exp(%0)", "exp(%1)"},
      {"exp(%0)", "tanh(%0)"},
      {"add(%4, %5)", "add(%5, %4)"},
      {"f32[", "f64["},
      {"value=i64[] {3}", "value=i64[] {4}"},
      {"starts=[0, 0]", "starts=[0, 1]"},
      {"global_shape=[batch, width]", "global_shape=[batch, 2*width]"},
      {"fold_in(%2, %3)", "fold_in(%3, %2)"},
      {"new_state \"w\"", "user_output \"w\""},
      {"parameter \"w\"", "parameter \"v\""},
      {"parameter \"w\"", "buffer \"w\""},
      {"composite \"scaled\"", "composite \"other\""},
      {" gradient @scaled_backward", ""},
      {"call(%2, graph=@scaled)", "exp(%2)"},
      {"entry second @second", "entry third @second"},
      {"entry second @second\n", ""},
      {"f32[batch, width]", "f32[batch, batch]"},
      {"f32[batch, width]", "f32[width, batch]"},
  };
  std::vector<std::string> seen = {hash(base)};
  for (const auto& [from, to] : different) {
    const std::string found = hash(replaced(base, from, to));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), found), 0) << from << " -> " << to;
    seen.push_back(found);
  }
}

TEST(ModuleHash, TellsHowSymbolsHangTogether) {
  const auto with_types = [](const char* a, const char* b, const char* c) {
    return hash(std::string("stepgraph 1 module m symbol p symbol q symbol r graph @g { input %0 : f32[") + a + "] input %1 : f32[" + b + "] input %2 : f32[" +
                c + "] output %0 } entry main @g");
  };
  EXPECT_EQ(with_types("p", "q", "p"), with_types("r", "p", "r"));
  EXPECT_EQ(with_types("p", "q", "r"), with_types("r", "q", "p"));
  EXPECT_NE(with_types("p", "q", "p"), with_types("p", "q", "q"));
  EXPECT_NE(with_types("p", "q", "r"), with_types("p", "q", "q"));
  EXPECT_EQ(with_types("p + 2*q", "p", "q"), with_types("r + 2*p", "r", "p"));
  EXPECT_NE(with_types("p + 2*q", "p", "q"), with_types("p + 2*q", "q", "p"));
  // A division that has no meaning when both symbols are taken for one.
  EXPECT_EQ(with_types("floordiv(r, p - q)", "p", "q"), with_types("floordiv(q, r - p)", "r", "p"));
}

}  // namespace hash_test
}  // namespace stepgraph
