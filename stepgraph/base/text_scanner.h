// SPDX-License-Identifier: Apache-2.0
// Reads the small languages of the project (.sg text, sizes, shardings, meshes) token by token. Whitespace and '#' comments to the end of the line
// separate tokens and are skipped before each. Errors are UserErrors with the place: "gpt.sg:12:7: found ';', wanted ')'".
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace stepgraph {

class TextScanner {
 public:
  /// `text` must outlive the scanner. `name` stands before the position in messages: a file name, or what is read ("mesh").
  TextScanner(std::string_view text, std::string name);

  std::string_view text() const { return text_; }
  size_t offset() const { return offset_; }  ///< of the next character, spaces not skipped
  int line();                                ///< from 1, of the next token
  int column();                              ///< from 1, of the next token, in bytes
  size_t mark();  ///< offset of the next token
  bool at_end();
  /// The next character after spaces, or 0 at the end.
  char peek();
  /// The next token starts with `token`; for a token that ends in a letter or digit, also ends there as a word.
  bool next_is(std::string_view token);
  bool try_consume(std::string_view token);
  void expect(std::string_view token);
  void expect_end();

  /// Letters, digits, '_' and '.', starting with a letter or '_'.
  std::string identifier(std::string_view wanted = "a name");
  std::optional<std::string> try_identifier();
  std::string word_or_quoted(std::string_view wanted);
  /// A word that is one of `names`: its place among them.
  size_t one_of(std::span<const std::string_view> names);
  int64_t integer();
  /// A number as std::from_chars reads it, or inf, -inf, nan.
  double real();
  /// In double quotes; escapes \" \\ \n \t \r \xHH. Without line breaks inside.
  std::string quoted_string();
  /// Items up to `close`, separated by commas.
  template <class Item>
  void list(std::string_view open, std::string_view close, const Item& item) {
    expect(open);
    for (bool first = true; !next_is(close); first = false) {
      if (!first && !try_consume(",")) fail_wanted("',' or '" + std::string(close) + "'");
      item();
    }
    expect(close);
  }
  /// The raw text up to one of `delimiters` (or the end) outside of brackets () [] {} <>; the delimiter is not consumed, spaces around are cut off.
  /// A closing bracket that opens nothing inside also ends it. Depth is bounded.
  std::string_view balanced_until(std::string_view delimiters);

  /// Throws for the next token: "found X, wanted `wanted`".
  [[noreturn]] void fail_wanted(std::string_view wanted);
  /// Throws "name:line:column: message" for the next token.
  [[noreturn]] void fail(std::string_view message);
  /// The same for a place of the text.
  [[noreturn]] void fail_at(size_t offset, std::string_view message) const;

 private:
  void skip();
  std::string found();
  std::string_view text_;
  std::string name_;
  size_t offset_ = 0;
  size_t counted_offset_ = 0;  // line() counts on from here, so that asking at every token stays linear
  int counted_line_ = 1;
};

/// The text of a double that reads back to the same bits (all NaN print as nan), as short as can be.
std::string real_text(double value);
/// In double quotes, as TextScanner::quoted_string reads it.
std::string quoted_text(std::string_view value);
/// As TextScanner::word_or_quoted reads it.
std::string word_or_quoted_text(std::string_view value);

inline constexpr size_t line_width = 160;
/// Line breaks instead of spaces where a statement would be wider: after the last comma that fits and is not inside a shape, a sharding or a list, else at the
/// last space. Never inside a string; what has no space stays whole. `indent` is that of the lines that follow the first.
std::string broken_statement(std::string_view statement, size_t continued_indent = 6);

}  // namespace stepgraph
