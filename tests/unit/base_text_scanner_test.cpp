// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/base/text_scanner.h"

namespace stepgraph {
namespace base_text_scanner_test {

std::string error_of(std::string_view text, const std::function<void(TextScanner&)>& action) {
  TextScanner scanner(text, "file.sg");
  try {
    action(scanner);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TextScannerTest, TokensAndPositions) {
  TextScanner scanner("  graph main( # the first\n\t%x : f32, -7 2.5e3\n) \"a\\n\\\"b\\x41\" ", "file.sg");
  EXPECT_EQ(scanner.column(), 3);
  EXPECT_FALSE(scanner.try_consume("gra"));
  EXPECT_TRUE(scanner.try_consume("graph"));
  EXPECT_EQ(scanner.identifier(), "main");
  scanner.expect("(");
  EXPECT_EQ(scanner.peek(), '%');
  EXPECT_EQ(scanner.line(), 2);
  EXPECT_EQ(scanner.column(), 2);
  scanner.expect("%");
  EXPECT_EQ(scanner.identifier(), "x");
  scanner.expect(":");
  EXPECT_EQ(scanner.try_identifier(), "f32");
  scanner.expect(",");
  EXPECT_EQ(scanner.try_identifier(), std::nullopt);
  EXPECT_EQ(scanner.integer(), -7);
  EXPECT_EQ(scanner.real(), 2500);
  scanner.expect(")");
  EXPECT_EQ(scanner.line(), 3);
  EXPECT_EQ(scanner.quoted_string(), "a\n\"bA");
  EXPECT_TRUE(scanner.at_end());
  EXPECT_EQ(scanner.peek(), '\0');
  scanner.expect_end();
}

TEST(TextScannerTest, Errors) {
  EXPECT_EQ(error_of("\n\n  x", [](TextScanner& s) { s.expect(")"); }), "file.sg:3:3: found 'x', wanted ')'");
  EXPECT_EQ(error_of("", [](TextScanner& s) { s.expect(")"); }), "file.sg:1:1: found the end, wanted ')'");
  EXPECT_EQ(error_of("a.b_1 c", [](TextScanner& s) { s.integer(); }), "file.sg:1:1: found 'a.b_1', wanted an integer");
  EXPECT_EQ(error_of("1.5", [](TextScanner& s) { s.integer(); }), "file.sg:1:1: found '1.5', wanted an integer");
  EXPECT_EQ(error_of("-9223372036854775809", [](TextScanner& s) { s.integer(); }), "file.sg:1:1: integer does not fit 64 bits");
  EXPECT_EQ(error_of("1e999", [](TextScanner& s) { s.real(); }), "file.sg:1:1: number is out of the range of f64");
  EXPECT_EQ(error_of("nan(3)x",
                     [](TextScanner& s) {
                       s.real();
                       s.expect_end();
                     }),
            "file.sg:1:4: found '(', wanted the end");
  EXPECT_EQ(error_of("infinity", [](TextScanner& s) { s.real(); }), "file.sg:1:1: found 'infinity', wanted a number");
  EXPECT_EQ(error_of("\"ab", [](TextScanner& s) { s.quoted_string(); }), "file.sg:1:1: string without a closing quote");
  EXPECT_EQ(error_of("\"a\nb\"", [](TextScanner& s) { s.quoted_string(); }), "file.sg:1:1: string without a closing quote");
  EXPECT_EQ(error_of("\"\\", [](TextScanner& s) { s.quoted_string(); }), "file.sg:1:1: string with an unknown escape, wanted \\\" \\\\ \\n \\t \\r or \\xHH");
  EXPECT_EQ(error_of("\"\\x4\"", [](TextScanner& s) { s.quoted_string(); }),
            "file.sg:1:1: string with an unknown escape, wanted \\\" \\\\ \\n \\t \\r or \\xHH");
  EXPECT_EQ(error_of("\x01", [](TextScanner& s) { s.identifier("a value"); }), "file.sg:1:1: found '\\x01', wanted a value");
  EXPECT_EQ(error_of("é", [](TextScanner& s) { s.identifier(); }), "file.sg:1:1: found 'é', wanted a name");
  EXPECT_EQ(error_of("9a", [](TextScanner& s) { s.identifier(); }), "file.sg:1:1: found '9a', wanted a name");
}

TEST(TextScannerTest, RealsReadBack) {
  for (const double value : {0.0, -0.0, 0.1, 1e300, 5e-324, -1.5, 123456789.0, static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    const std::string text = real_text(value);
    TextScanner scanner(text, "x");
    const double read = scanner.real();
    EXPECT_EQ(read, value);
    EXPECT_EQ(std::signbit(read), std::signbit(value));
  }
  EXPECT_EQ(real_text(-NAN), "nan");
  TextScanner scanner("nan, -inf", "x");
  EXPECT_TRUE(std::isnan(scanner.real()));
  scanner.expect(",");
  EXPECT_EQ(scanner.real(), -INFINITY);
}

TEST(TextScannerTest, StringsReadBack) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  const std::string text = quoted_text(all);
  TextScanner scanner(text, "x");
  EXPECT_EQ(scanner.quoted_string(), all);
  scanner.expect_end();
}

TEST(TextScannerTest, BalancedCapture) {
  TextScanner scanner(" min(a, b) + [1, {2}] , rest>", "x");
  EXPECT_EQ(scanner.balanced_until(",]"), "min(a, b) + [1, {2}]");
  scanner.expect(",");
  EXPECT_EQ(scanner.balanced_until(","), "rest");
  EXPECT_EQ(scanner.peek(), '>');
  EXPECT_EQ(error_of("(a, b", [](TextScanner& s) { s.balanced_until(","); }), "file.sg:1:6: found the end, wanted ')'");
  EXPECT_EQ(error_of("(a]", [](TextScanner& s) { s.balanced_until(","); }), "file.sg:1:3: found ']', wanted ')'");
  EXPECT_EQ(error_of(std::string(1000, '('), [](TextScanner& s) { s.balanced_until(","); }), "file.sg:1:1: brackets are nested too deeply");
}

}  // namespace base_text_scanner_test
}  // namespace stepgraph
