// SPDX-License-Identifier: Apache-2.0
// Malformed .sg text: one UserError each, with the place and what was found and wanted.
#include <gtest/gtest.h>

#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ir/text.h"

namespace stepgraph {
namespace sg_text_test {

const std::string start = "stepgraph 1\nmodule m\n";

/// A graph whose nodes begin on line 5.
std::string graph(const std::string& nodes) { return start + "graph @main {\n  input %x : f32[2, 3]\n  " + nodes + "\n}\n"; }

struct Case {
  std::string text;
  std::string message;  ///< a part of it, with the place
};

const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      // the head
      {"", "bad.sg:1:1: found the end, wanted 'stepgraph'"},
      {"\xEF\xBB\xBFstepgraph 1\nmodule m\n", "bad.sg:1:1: found '\xEF\xBB\xBF', wanted 'stepgraph'"},
      {"stepgraph\nmodule m\n", "bad.sg:2:1: found 'module', wanted an integer"},
      {"stepgraph 2\nmodule m\n", "bad.sg:1:11: found format version 2, wanted 1"},
      {"stepgraph 99999999999999999999\n", "bad.sg:1:11: integer does not fit 64 bits"},
      {"stepgraph 1\n", "bad.sg:2:1: found the end, wanted 'module'"},
      {"stepgraph 1\nmodule \"m\n", "bad.sg:2:8: string without a closing quote"},
      {"stepgraph 1\nmodule m stage logic\n", "bad.sg:2:16: found 'logic', wanted logical, sharded or local"},
      {start + "grph @main {\n}\n", "bad.sg:3:1: found 'grph', wanted symbol, state, mesh, graph, entry or the end"},
      // symbols, mesh, entries
      {start + "symbol 3\n", "bad.sg:3:8: found '3', wanted the symbol's name"},
      {start + "symbol n\nsymbol n\n", "bad.sg:4:8: symbol 'n' is declared twice"},
      {start + "symbol n in [1 4]\n", "bad.sg:3:16: found '4', wanted ','"},
      {start + "symbol n in [5, 4]\n", "bad.sg:3:8: symbol n: "},
      {start + "symbol n multiple 0\n", "bad.sg:3:8: symbol n: "},
      {start + "symbol n buckets 8\n", "bad.sg:3:18: found '8', wanted '['"},
      {start + "mesh data\n", "bad.sg:4:1: found the end, wanted '='"},
      {start + "mesh data=0\n", "bad.sg:3:11: axis 'data' has size 0"},
      {start + "mesh data=2, data=2\n", "bad.sg:3:"},
      {start + "mesh data=1000000,model=1000000\n", "bad.sg:3:"},
      {start + "mesh data=2\nmesh model=2\n", "bad.sg:4:6: the mesh is stated twice"},
      {start + "entry main main\n", "bad.sg:3:12: found 'main', wanted '@'"},
      {start + "entry main @main\n", "bad.sg:3:12: graph @main is not defined in this module"},
      {start + "graph @g {\n}\nentry main @g\nentry main @g\n", "bad.sg:6:7: entry 'main' is defined twice"},
      // graphs
      {start + "graph main {\n}\n", "bad.sg:3:7: found 'main', wanted '@'"},
      {start + "graph @g {\n}\ngraph @g {\n}\n", "bad.sg:5:7: graph @g is defined twice"},
      {start + "graph @g composite softmax {\n}\n", "bad.sg:3:20: found 'softmax', wanted a string in double quotes"},
      {start + "graph @g gradient @h {\n}\n", "bad.sg:3:19: graph @h is not defined in this module"},
      {start + "graph @g {\n", "bad.sg:4:1: found the end, wanted the name of an operator"},
      {start + "graph @g {\n  input %x f32[2]\n}\n", "bad.sg:4:12: found 'f32', wanted ':'"},
      {start + "graph @g {\n  input x : f32[2]\n}\n", "bad.sg:4:9: found 'x', wanted '%'"},
      {start + "graph @g {\n  input %x : f32[2]\n  input %x : f32[2]\n}\n", "bad.sg:5:9: value %x is defined twice"},
      {start + "graph @g {\n  input %x : f32[2] paramter \"w\"\n}\n", "bad.sg:4:21: unknown role 'paramter', the nearest is 'parameter'"},
      {graph("output %x\n  %y = neg(%x) : f32[2, 3]"), "bad.sg:6:3: found '%', wanted output or '}'"},
      {graph("output x"), "bad.sg:5:10: found 'x', wanted a value as %0"},
      {graph("output %y"), "bad.sg:5:10: value %y is not defined before its use"},
      // types
      {start + "graph @g {\n  input %x : float[2]\n}\n", "bad.sg:4:14: found 'float', wanted a dtype"},
      {start + "graph @g {\n  input %x : f32\n}\n", "bad.sg:5:1: found '}', wanted '['"},
      {start + "graph @g {\n  input %x : f32[2, 3\n}\n", "bad.sg:5:1: found '}', wanted ',' or ']'"},
      {start + "graph @g {\n  input %x : f32[2,, 3]\n}\n", "bad.sg:4:20: found ','"},
      {start + "graph @g {\n  input %x : f32[2 * (n + 1]\n}\n", "bad.sg:4:28: found ']', wanted ')'"},
      {start + "graph @g {\n  input %x : f32[floordiv(n, 0)]\n}\n", "bad.sg:4:"},
      {start + "graph @g {\n  input %x : f32[9223372036854775807 * 2]\n}\n", "size overflows 64 bits"},
      {start + "graph @g {\n  input %x : f32[round(n)]\n}\n", "bad.sg:4:23: found function 'round'"},
      {start + "graph @g {\n  input %x : f32[" + std::string(5000, '(') + "n\n}\n", "nested too deeply"},
      {start + "graph @g {\n  input %x : f32[2]<{data}\n}\n", "found '}', wanted '>'"},
      {start + "graph @g {\n  input %x : f32[2]<{data:(2)}>\n}\n", "bad.sg:4:"},
      // nodes
      {graph("%y = ngeg(%x) : f32[2, 3]"), "bad.sg:5:8: unknown operator 'ngeg', the nearest is 'neg'"},
      {graph("%y = sum(%x) : f32[2, 3]"), "bad.sg:5:8: unknown operator 'sum', the nearest is 'reduce_sum'"},
      {graph("%y = " + std::string(100000, 'a') + "(%x)"), "unknown operator"},
      {graph("%y neg(%x)"), "bad.sg:5:6: found 'neg', wanted '='"},
      {graph("%y = neg %x"), "bad.sg:5:12: found '%', wanted '('"},
      {graph("%y = neg(%x"), "bad.sg:6:1: found '}', wanted ',' or ')'"},
      {graph("%y = neg(%z) : f32[2, 3]"), "bad.sg:5:12: value %z is not defined before its use"},
      {graph("%y = neg(%y) : f32[2, 3]"), "bad.sg:5:12: value %y is not defined before its use"},
      {graph("%x = neg(%x) : f32[2, 3]"), "bad.sg:5:3: value %x is defined twice"},
      {graph("% = neg(%x) : f32[2, 3]"), "bad.sg:5:3: wanted the name of a value after '%'"},
      {graph("%y = neg(%x)"), "bad.sg:6:1: found '}', wanted ':'"},
      {graph("%a, %b = moments(%x, dims=[1]) : f32[2]"), "bad.sg:6:1: found '}', wanted ','"},
      {graph("%y = neg(%x) : f32[2, 3] at \"gpt.cpp\""), "bad.sg:5:31: found \"gpt.cpp\", wanted a place as \"gpt.cpp:41\""},
      {graph("%y = neg(%x) : f32[2, 3] at \"gpt.cpp:99999999999\""), "wanted a place"},
      {graph("%y = neg(%x) : f32[2, 3] scope h"), "bad.sg:5:34: found 'h', wanted a string in double quotes"},
      // attributes
      {graph("%y = neg(%x, dim=1) : f32[2, 3]"), "bad.sg:5:16: neg has no attribute 'dim', it has none"},
      {graph("%y = reduce_sum(%x, dim=[1]) : f32[2]"), "bad.sg:5:23: reduce_sum has no attribute 'dim', the nearest is 'dims'"},
      {graph("%y = reduce_sum(%x, dims=[1], dims=[1]) : f32[2]"), "bad.sg:5:33: attribute 'dims' is stated twice"},
      {graph("%y = reduce_sum(dims=[1], %x) : f32[2]"), "bad.sg:5:29: inputs come before attributes"},
      {graph("%y = reduce_sum(%x, dims=1) : f32[2]"), "bad.sg:5:28: found '1', wanted '['"},
      {graph("%y = reduce_sum(%x, dims=[a]) : f32[2]"), "bad.sg:5:29: found 'a', wanted an integer"},
      {graph("%y = convert(%x, dtype=f31) : f32[2]"), "bad.sg:5:26: found 'f31', wanted a dtype"},
      {graph("%y = convert(%x, explicit=yes) : f32[2]"), "bad.sg:5:29: found 'yes', wanted true or false"},
      {graph("%y = iota(shape=[n +]) : f32[2]"), "bad.sg:5:23: found ']', wanted"},
      {graph("%y = call(%x, graph=main) : f32[2]"), "bad.sg:5:23: found 'main', wanted '@'"},
      {graph("%y = call(%x, graph=@other) : f32[2]"), "bad.sg:5:23: graph @other is not defined in this module"},
      {graph("%y = all_reduce(%x, kind=avg) : f32[2]"), "bad.sg:5:28: found 'avg', wanted sum, product, max, min, any or all"},
      {graph("%y = all_reduce(%x, axes=[data:(1)0]) : f32[2]"), "bad.sg:5:37: part of axis 'data'"},
      {graph("%y = reshard(%x, target=<{data}, {}) : f32[2]"), "bad.sg:5:38: found ')', wanted '>'"},
      // literals
      {graph("%y = constant(value=f99[2] {1, 2}) : f32[2]"), "bad.sg:5:23: unknown dtype 'f99'"},
      {graph("%y = constant(value=f32[2] {1}) : f32[2]"), "bad.sg:5:32: found 1 elements, wanted the 2 that the sizes say"},
      {graph("%y = constant(value=f32[2] {1, 2, 3}) : f32[2]"), "bad.sg:5:37: found more than the 2 elements"},
      {graph("%y = constant(value=f32[-1] {}) : f32[2]"), "bad.sg:5:23: found size -1, wanted a size of at least 0"},
      {graph("%y = constant(value=f32[4294967296, 4294967296] {}) : f32[2]"), "bad.sg:5:23: size overflows 64 bits"},
      {graph("%y = constant(value=f32[1099511627776] splat 0) : f32[2]"), "splat of 1099511627776 elements"},
      {graph("%y = constant(value=f32[1099511627776] base64 \"AAAA\") : f32[2]"), "found 4 base64 digits, too few for 1099511627776 elements"},
      {graph("%y = constant(value=f32[2305843009213693952] base64 \"AAAA\") : f32[2]"), "too few for"},
      {graph("%y = constant(value=u8[4] base64 \"AAAA\") : f32[2]"), "wanted the base64 of exactly 4 bytes"},
      {graph("%y = constant(value=u8[3] base64 \"AA*A\") : f32[2]"), "wanted the base64 of exactly 3 bytes"},
      {graph("%y = constant(value=u8[1] base64 \"AB==\") : f32[2]"), "wanted the base64 of exactly 1 bytes"},
      {graph("%y = constant(value=u8[2] {1, 256}) : f32[2]"), "bad.sg:5:33: number is out of the range of u8"},
      {graph("%y = constant(value=f32[1] {1e39}) : f32[2]"), "bad.sg:5:31: number is out of the range of f32"},
      {graph("%y = constant(value=f16[1] {65520}) : f32[2]"), "bad.sg:5:31: number is out of the range of f16"},
      {graph("%y = constant(value=f64[1] {1e999}) : f32[2]"), "number is out of the range of f64"},
      {graph("%y = constant(value=i64[1] {1.5}) : f32[2]"), "bad.sg:5:31: found '1.5', wanted an integer"},
      {graph("%y = constant(value=bool[1] {1}) : f32[2]"), "bad.sg:5:32: found '1', wanted true or false"},
      {graph("%y = constant(value=bool[3] base64 \"AQAC\") : bool[3]"), "bool element 2 is 2, wanted 0 or 1"},
      {graph("%y = constant(value=f32[2] [1, 2]) : f32[2]"), "bad.sg:5:30: found '[', wanted '{', 'splat' or 'base64'"},
  };
  return table;
}

TEST(SgText, EachFaultGivesOneClearError) {
  for (const Case& one : cases()) {
    const std::string shown = one.text.size() > 300 ? one.text.substr(0, 300) + "..." : one.text;
    SCOPED_TRACE(shown);
    try {
      parse_module(one.text, "bad.sg");
      ADD_FAILURE() << "no error, wanted: " << one.message;
    } catch (const UserError& error) {
      const std::string found = error.what();
      EXPECT_NE(found.find(one.message), std::string::npos) << "found:  " << found << "\nwanted: " << one.message;
      EXPECT_TRUE(found.starts_with("bad.sg:")) << found;
      EXPECT_FALSE(found.ends_with(".")) << found;
      EXPECT_EQ(found.find('\n'), std::string::npos) << found;
      EXPECT_LT(found.size(), one.text.size() + 200) << found;
    }
  }
}

TEST(SgText, EveryPrefixOfAProgramIsAnErrorOrAProgram) {
  const std::string text = start +
                           "mesh data=2\nsymbol n in [1, 8]\ngraph @main composite \"a\" {\n  input %x : f32[n, 3]<{data}, {}> parameter \"w\"\n"
                           "  %y, %z = moments(%x, dims=[1]) : f32[n], f32[n] at \"a.cpp:1\" scope \"s\"\n"
                           "  %c = constant(value=f32[2] {1, -2.5e-3}) : f32[2]\n  output %y new_state \"w\"\n}\nentry main @main\n";
  EXPECT_NO_THROW(parse_module(text));
  for (size_t size = 0; size < text.size(); ++size) {
    try {
      parse_module(text.substr(0, size), "bad.sg");
    } catch (const UserError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("bad.sg:")) << error.what();
    }
    for (const char broken : {'\0', '%', '"', '(', '\xFF'}) {
      std::string changed = text;
      changed[size] = broken;
      try {
        parse_module(changed, "bad.sg");
      } catch (const UserError&) {
      }
    }
  }
}

}  // namespace sg_text_test
TEST(SgText, AShapeHasABoundedNumberOfDims) {
  std::string dims = "1";
  for (int i = 0; i < 256; ++i) dims += ", 1";
  try {
    parse_module("stepgraph 1\nmodule m\ngraph @main {\n  input %x : f32[" + dims + "]\n}\n", "bad.sg");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), "bad.sg:4:17: found a shape of more than 256 dims");
  }
}

}  // namespace stepgraph
