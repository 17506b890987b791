// SPDX-License-Identifier: Apache-2.0
// Malformed text of plans and forms: one UserError each, with the place and what was found and wanted.
#include <gtest/gtest.h>

#include <string>

#include "stepgraph/program/form_text.h"
#include "tests/support/error_of.h"
#include "tests/support/plan_samples.h"

namespace stepgraph {
namespace plan_text_errors {

using testing::error_of;
using testing::plan_sample;
using testing::plan_with;

const std::string head = "stepgraph_plan 1\ntarget avx2 threads 2 l1 1 l2 1 granularity 64\n";

std::string plan_error(const std::string& text) {
  return error_of([&] { parse_plan(text, "a.plan"); });
}

TEST(PlanTextErrors, TablesOfAPlan) {
  const struct {
    std::string text, message;
  } cases[] = {
      {"", "a.plan:1:1: found the end, wanted 'stepgraph_plan'"},
      {"stepgraph_plan 7", "a.plan:1:16: found format version 7, wanted 1"},
      {"stepgraph_plan 1\ntarget sse", "a.plan:2:8: found 'sse', wanted avx2 or avx512"},
      {"stepgraph_plan 1\ntarget avx2 threads -1", "a.plan:2:21: found -1, wanted a number from 0"},
      {head + "mesh data=0", "a.plan:3:6: mesh:1:6: axis 'data' has size 0, wanted at least 1"},
      {head + "symbol n\nsymbol n", "a.plan:4:8: symbol 'n' is declared twice"},
      {head + "symbol n in [3, 2]", "a.plan:3:8: symbol n"},
      {head + "state \"w\" weight f32[2]", "a.plan:3:11: unknown role 'weight'"},
      {head + "state \"w\" parameter f31[2]", "a.plan:3:21: found 'f31', wanted a dtype"},
      {head + "constant f32[2] {1}", "found 1 elements, wanted the 2 that the sizes say"},
      {head + "constant f32[2] hash \"\"", "a.plan:3:10: wanted 8 bytes of constants from outside of the text, found 0"},
      {head + "constant f32[-2] hash \"\"", "a.plan:3:10:"},
      {head + "form sizes 0 {}", "a.plan:3:1: found 'form', wanted a form as f0"},
      {head + "f1 = form sizes 0 {}", "a.plan:3:1: found f1, wanted f0"},
      {head + "f0 = form sizes 0 {}\nf1", "a.plan:4:1: found 'f1', wanted 'code'"},
      {head + "f0 = form sizes 0 {}\ncode \"a\" parallel 1 scratch 0 object -1 \"\"", "a.plan:4:38: found an object of -1 bytes"},
      {head + "plan", "a.plan:3:1: found 'plan', wanted a form as f0 or entry"},
      {head + "entry a arena 0 commit 0 {\n}\nentry a arena 0 commit 0 {\n}", "a.plan:5:7: entry 'a' is defined twice"},
      {head + "entry a arena 0 commit 0 {\n}\nsymbol n", "a.plan:5:1: found 'symbol', wanted entry or the end"},
      {head + "entry a arena 0 commit 0 {\n", "a.plan:4:1: found the end, wanted an instruction or '}'"},
  };
  for (const auto& one : cases)
    EXPECT_NE(plan_error(one.text).find(one.message), std::string::npos) << "found:  " << plan_error(one.text) << "\nwanted: " << one.message;
}

TEST(PlanTextErrors, EntriesOfAPlan) {
  const std::string step = plan_sample("step");
  const struct {
    std::string from, to, message;
  } cases[] = {
      {"buffer b2 =", "buffer b3 =", "found b3, wanted b2"},
      {"buffer b2 = input 2", "buffer b2 = output 2", "found 'output', wanted state, constant, input or arena"},
      {"f32[1] \"lr\"", "f32[1, 2] \"lr\"", "found ',', wanted ']'"},
      {"label \"linear\"", "label linear", "found 'linear', wanted a string in double quotes"},
      {"meet matmul", "meet gemm", "unknown instruction 'gemm'"},
      {"b3[4, 4] -> b7", "b3[4, 4], b7", "found ',', wanted '->'"},
      {"b7[batch, 4] f32 onednn", "b7[batch, 4] f32 mkl", "found 'mkl', wanted onednn or openblas"},
      {"b7[batch, 4] f32 onednn", "b7[batch, 4] f32 onednn rows 0", "found 0 pieces, wanted at least 1"},
      {"-> b7[batch, 4] f32 onednn", "-> 7[batch, 4] f32 onednn", "found '7', wanted a buffer as b0"},
      {"-> b7[batch, 4] f32 onednn", "-> b07[batch, 4] f32 onednn", "found 'b07', wanted a buffer as b0"},
      {"-> b7[batch, 4] f32 onednn", "-> b7[batch, 4 f32 onednn", "found 'f32', wanted ',' or ']'"},
      {"form f0 (b7, b4)", "form g0 (b7, b4)", "found 'g0', wanted a form as f0"},
      {"phase update label \"sgd\"", "phase backwards label \"sgd\"", "found 'backwards', wanted forward, backward, recompute, sync, update or evaluation"},
      {"repeat k count 3", "repeat 3 count 3", "found '3', wanted the repeat's symbol"},
      {"private (b13)", "private (13)", "found '13', wanted a buffer as b0"},
  };
  for (const auto& one : cases) {
    const std::string found = plan_error(plan_with(step, one.from, one.to));
    EXPECT_NE(found.find(one.message), std::string::npos) << "found:  " << found << "\nwanted: " << one.message;
    EXPECT_TRUE(found.starts_with("a.plan:")) << found;
  }
  std::string deep = head + "entry a arena 0 commit 0 {\n";
  for (int i = 0; i < 100; ++i) deep += "repeat i count 1 {\n";
  EXPECT_EQ(plan_error(deep), "a.plan:37:1: repeats are nested too deeply");
}

TEST(PlanTextErrors, Forms) {
  const std::string start = "form sizes 1 {\nfactor i0 = s0\noperand 0 read f32\n", load = start + "%0 = load 0 [i0] : f32\n";
  const struct {
    std::string text, message;
  } cases[] = {
      {"form {", "f:1:6: found '{', wanted 'sizes'"},
      {"form sizes -1 {", "f:1:12: found -1, wanted a number from 0"},
      {"form sizes 0 {\nfactor i1 = 3", "f:2:8: found i1, wanted i0"},
      {"form sizes 0 {\nfactor j = 3", "f:2:8: found 'j', wanted a factor as i0"},
      {"form sizes 0 {\noperand 1 f32", "f:2:9: found operand 1, wanted operand 0"},
      {start + "%1 = load 0 [i0] : f32", "f:4:1: found %1, wanted %0"},
      {start + "%0 = fetch 0 [i0] : f32", "f:4:6: unknown operation 'fetch' of a form"},
      {start + "%0 = load 0 [i0 + i0] : f32", "f:4:19: factors of an address stand once, in ascending order"},
      {start + "%0 = load 0 [2*s0] : f32", "f:4:16: found 's0', wanted a factor as i0"},
      {start + "%0 = load 0 [i0 - 1] : f32", "f:4:17: found '-', wanted ']'"},
      {start + "%0 = load 0 [i0] where [i0] < 3 : f32", "f:4:33: found ':', wanted 'else'"},
      {start + "%0 = neg %0 : f32", "f:4:10: value %0 is not defined before its use"},
      {load + "%1 = neg 0 : f32", "f:5:10: found '0', wanted a value as %0"},
      {load + "%1 = constant one : f32", "f:5:15: found 'one', wanted a number"},
      {load + "%1 = constant 2 : bool", "f:5:15: found '2', wanted false or true"},
      {load + "%1 = constant bits 7fc0 : f32", "f:5:20: found '7fc0', wanted bits as x7fc00000"},
      {load + "%1 = constant bits xyz : f32", "f:5:20: found 'xyz', wanted bits as x7fc00000"},
      {load + "%1 = sum over 1 of %0 : f32", "f:5:15: found '1', wanted a factor as i0"},
      {load + "store 0 [i0] = %1", "f:5:16: value %1 is not defined before its use"},
      {load + "operand 1 f32", "f:5:1: found 'operand', wanted '}', or factors, operands, values as %0 and stores in this order"},
      {load + "}\n}", "f:6:1: found '}', wanted the end"},
  };
  for (const auto& one : cases) {
    const std::string found = error_of([&] { parse_form(one.text, "f"); });
    EXPECT_EQ(found.substr(0, one.message.size()), one.message);
  }
}

}  // namespace plan_text_errors
}  // namespace stepgraph
