// SPDX-License-Identifier: Apache-2.0
// The examples of docs/text-format.md are programs, and the forms that it promises hold.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/verify.h"
#include "tests/support/places.h"
#include "tests/text/runner.h"

namespace stepgraph {
namespace docs_test {

const std::string source = testing::source_root();

std::vector<std::string> fences(const std::string& text, const std::string& language) {
  std::vector<std::string> result;
  const std::string open = "\n```" + language + "\n", close = "\n```\n";
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    const size_t end = text.find(close, at);
    if (end == std::string::npos) break;
    result.push_back(text.substr(at, end + 1 - at));
    at = end;
  }
  return result;
}

TEST(TextFormatPage, ExamplesAreReadVerifiedAndPrinted) {
  const auto examples = fences(tests::read_file(source + "/docs/text-format.md"), "sg");
  EXPECT_GE(examples.size(), 6u);
  for (const std::string& example : examples) {
    SCOPED_TRACE(example);
    const Module module = parse_module(example);
    EXPECT_NO_THROW(verify(module));
    const std::string text = print_module(module);
    EXPECT_EQ(print_module(parse_module(text)), text);
  }
}

TEST(TextFormatPage, NamesEveryDTypeAndRole) {
  const std::string page = tests::read_file(source + "/docs/text-format.md");
  for (int i = 0; i < dtype_count; ++i) EXPECT_NE(page.find("'" + std::string(name(static_cast<DType>(i))) + "'"), std::string::npos) << i;
  for (int i = 1; i <= static_cast<int>(RoleKind::NewState); ++i)
    EXPECT_NE(page.find("`" + std::string(name(static_cast<RoleKind>(i))) + "`"), std::string::npos) << i;
}

TEST(TextTests, EveryOperatorIsInAVerifiedFile) {
  std::string all;
  for (const char* file : {"sources", "elementwise", "reductions", "movement", "block", "attention", "control", "sharded", "local"})
    all += tests::read_text_test(source + "/tests/text/form/" + file + ".sg").source;
  const auto is_in = [&](const Op& op) { return all.find("= " + std::string(name(op)) + "(") != std::string::npos; };
  for (const Op& op : all_ops()) {
    // Kinds without attributes differ in their name alone, which RoundTrip.EveryOp prints and reads.
    if (std::holds_alternative<Unary>(op) || std::holds_alternative<Binary>(op) || std::holds_alternative<Compare>(op)) continue;
    EXPECT_TRUE(is_in(op)) << name(op);
  }
  for (const Op& op : {Op(Unary{}), Op(Binary{}), Op(Compare{})}) EXPECT_TRUE(is_in(op)) << name(op);
}

}  // namespace docs_test
}  // namespace stepgraph
