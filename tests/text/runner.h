// SPDX-License-Identifier: Apache-2.0
// Tests that are .sg files. Comments at the top say what to do, text after a line `---` what must come out:
//
//     # run: verify                      verbs, done in order; each is a row of the table in runner.cpp
//     # run: evaluate main
//     # input 0 = f32[2] {1, 2}          an input of the entry, by number or by the name of its role
//     # symbol n = 5                     the value of a symbol that the inputs do not tell
//     stepgraph 1
//     module m stage logical
//     ...
//     ---
//     output 0: f32[] {3}
//
// Every file that can be read is also printed and read again. A UserError comes out as "error: " and its message and ends the file's verbs.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph::tests {

struct TextTest {
  std::string name;    ///< of the file, without its folder
  std::string source;  ///< up to the line `---`: comments and module
  std::string expected;
  std::vector<std::string> runs;
  std::map<std::string, Literal> inputs;
  SymbolValues symbols;
};
TextTest read_text_test(const std::string& path);
/// What comes out of the file's verbs.
std::string run_text_test(const TextTest& test);
std::string read_file(const std::string& path);

}  // namespace stepgraph::tests
