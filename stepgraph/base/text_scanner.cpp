// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/text_scanner.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

constexpr int depth_max = 200;

// Own predicates: those of <cctype> ask the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '.'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string in_quotes(std::string_view token) { return std::string("'").append(token).append("'"); }

/// Of < and >: not "less than", nor the head of an arrow.
bool is_bracket(std::string_view text, size_t at) { return at > 0 && text[at - 1] != ' ' && text[at - 1] != '-'; }

char hex_digit(unsigned value) { return "0123456789abcdef"[value & 15]; }

}  // namespace

TextScanner::TextScanner(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

void TextScanner::skip() {
  while (offset_ < text_.size()) {
    if (text_[offset_] == '#') {
      while (offset_ < text_.size() && text_[offset_] != '\n') ++offset_;
    } else if (is_space(text_[offset_])) {
      ++offset_;
    } else {
      return;
    }
  }
}

int TextScanner::line() {
  skip();
  if (offset_ < counted_offset_) counted_offset_ = 0, counted_line_ = 1;
  for (; counted_offset_ < offset_; ++counted_offset_)
    if (text_[counted_offset_] == '\n') ++counted_line_;
  return counted_line_;
}

int TextScanner::column() {
  skip();
  size_t start = offset_;
  while (start > 0 && text_[start - 1] != '\n') --start;
  return static_cast<int>(offset_ - start) + 1;
}

bool TextScanner::at_end() {
  skip();
  return offset_ == text_.size();
}

size_t TextScanner::mark() {
  skip();
  return offset_;
}

char TextScanner::peek() { return at_end() ? '\0' : text_[offset_]; }

bool TextScanner::next_is(std::string_view token) {
  skip();
  if (!text_.substr(offset_).starts_with(token)) return false;
  const size_t end = offset_ + token.size();
  return token.empty() || !is_word(token.back()) || end == text_.size() || !is_word(text_[end]);
}

bool TextScanner::try_consume(std::string_view token) {
  if (!next_is(token)) return false;
  offset_ += token.size();
  return true;
}

void TextScanner::expect(std::string_view token) {
  if (!try_consume(token)) fail_wanted(in_quotes(token));
}

void TextScanner::expect_end() {
  if (!at_end()) fail_wanted("the end");
}

std::optional<std::string> TextScanner::try_identifier() {
  if (at_end() || !is_letter(text_[offset_])) return std::nullopt;
  const size_t start = offset_;
  while (offset_ < text_.size() && is_word(text_[offset_])) ++offset_;
  return std::string(text_.substr(start, offset_ - start));
}

std::string TextScanner::identifier(std::string_view wanted) {
  auto result = try_identifier();
  if (!result) fail_wanted(wanted);
  return *std::move(result);
}

std::string TextScanner::word_or_quoted(std::string_view wanted) { return peek() == '"' ? quoted_string() : identifier(wanted); }

size_t TextScanner::one_of(std::span<const std::string_view> names) {
  std::string wanted;
  for (size_t i = 0; i < names.size(); ++i) wanted.append(i == 0 ? "" : i + 1 < names.size() ? ", " : " or ").append(names[i]);
  const size_t begin = mark();
  const std::string word = identifier(wanted);
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) fail_at(begin, "found '" + word + "', wanted " + wanted);
  return static_cast<size_t>(found - names.begin());
}

int64_t TextScanner::integer() {
  skip();
  int64_t value = 0;
  const char* begin = text_.data() + offset_;
  const char* limit = text_.data() + text_.size();
  const auto [end, error] = std::from_chars(begin, limit, value);
  if (error == std::errc::result_out_of_range) fail("integer does not fit 64 bits");
  if (error != std::errc{} || (end != limit && is_word(*end))) fail_wanted("an integer");
  offset_ += static_cast<size_t>(end - begin);
  return value;
}

double TextScanner::real() {
  skip();
  if (try_consume("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (try_consume("inf")) return std::numeric_limits<double>::infinity();
  if (try_consume("-inf")) return -std::numeric_limits<double>::infinity();
  const size_t first = text_.substr(offset_).starts_with('-') ? offset_ + 1 : offset_;
  // from_chars also takes "nan(...)" and "infinity", which are not ours.
  if (first >= text_.size() || !(is_digit(text_[first]) || text_[first] == '.')) fail_wanted("a number");
  double value = 0;
  const char* begin = text_.data() + offset_;
  const char* limit = text_.data() + text_.size();
  const auto [end, error] = std::from_chars(begin, limit, value);
  if (error == std::errc::result_out_of_range) fail("number is out of the range of f64");
  if (error != std::errc{} || (end != limit && is_word(*end))) fail_wanted("a number");
  offset_ += static_cast<size_t>(end - begin);
  return value;
}

std::string TextScanner::quoted_string() {
  if (peek() != '"') fail_wanted("a string in double quotes");
  std::string result;
  size_t i = offset_ + 1;
  for (;; ++i) {
    if (i >= text_.size() || text_[i] == '\n') fail("string without a closing quote");
    if (text_[i] == '"') break;
    if (text_[i] != '\\') {
      result += text_[i];
      continue;
    }
    ++i;
    const char escape = i < text_.size() ? text_[i] : '\0';
    if (escape == '"' || escape == '\\')
      result += escape;
    else if (escape == 'n')
      result += '\n';
    else if (escape == 't')
      result += '\t';
    else if (escape == 'r')
      result += '\r';
    else if (escape == 'x' && i + 2 < text_.size() && hex_value(text_[i + 1]) >= 0 && hex_value(text_[i + 2]) >= 0) {
      result += static_cast<char>(hex_value(text_[i + 1]) * 16 + hex_value(text_[i + 2]));
      i += 2;
    } else {
      fail("string with an unknown escape, wanted \\\" \\\\ \\n \\t \\r or \\xHH");
    }
  }
  offset_ = i + 1;
  return result;
}

std::string_view TextScanner::balanced_until(std::string_view delimiters) {
  skip();
  const size_t start = offset_;
  std::string open;
  size_t i = start;
  for (; i < text_.size(); ++i) {
    const char c = text_[i];
    if (open.empty() && delimiters.find(c) != std::string_view::npos) break;
    const size_t opening = std::string_view("([{<").find(c);
    const size_t closing = std::string_view(")]}>").find(c);
    if (opening != std::string_view::npos) {
      if (open.size() >= depth_max) fail("brackets are nested too deeply");
      open += ")]}>"[opening];
    } else if (closing != std::string_view::npos) {
      if (open.empty()) break;
      if (open.back() != c) {
        offset_ = i;
        fail_wanted(in_quotes({&open.back(), 1}));
      }
      open.pop_back();
    }
  }
  if (!open.empty()) {
    offset_ = text_.size();
    fail_wanted(in_quotes({&open.back(), 1}));
  }
  offset_ = i;
  std::string_view result = text_.substr(start, i - start);
  while (!result.empty() && is_space(result.back())) result.remove_suffix(1);
  return result;
}

std::string TextScanner::found() {
  if (at_end()) return "the end";
  size_t end = offset_;
  // A whole word, or one character: of UTF-8 the whole sequence.
  while (end < text_.size() && end - offset_ < 40 && is_word(text_[end])) ++end;
  if (end == offset_) {
    ++end;
    while (end < text_.size() && end - offset_ < 4 && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) ++end;
  }
  std::string result = "'";
  for (const char c : text_.substr(offset_, end - offset_)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F)
      result += std::string("\\x") + hex_digit(byte >> 4) + hex_digit(byte);
    else
      result += c;
  }
  return result + "'";
}

void TextScanner::fail_wanted(std::string_view wanted) { fail("found " + found() + ", wanted " + std::string(wanted)); }

void TextScanner::fail(std::string_view message) {
  throw UserError(name_ + ":" + std::to_string(line()) + ":" + std::to_string(column()) + ": " + std::string(message));
}

void TextScanner::fail_at(size_t offset, std::string_view message) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t column = offset - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
  throw UserError(name_ + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + std::string(message));
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string quoted_text(std::string_view value) {
  std::string result = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (result += '\\') += c;
    else if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else if (c == '\r')
      result += "\\r";
    else if (byte < 0x20 || byte == 0x7F)
      result += std::string("\\x") + hex_digit(byte >> 4) + hex_digit(byte);
    else
      result += c;
  }
  return result + "\"";
}

std::string word_or_quoted_text(std::string_view value) {
  const bool is_plain = !value.empty() && is_letter(value.front()) && std::all_of(value.begin(), value.end(), is_word);
  return is_plain ? std::string(value) : quoted_text(value);
}

std::string broken_statement(std::string_view statement, size_t continued_indent) {
  std::string result;
  size_t begin = 0, indent = 0;
  while (indent + statement.size() - begin > line_width) {
    size_t comma = 0, space = 0, first = 0;
    bool in_string = false;
    int depth = 0;
    for (size_t i = begin; i < statement.size() && (indent + i - begin <= line_width || first == 0); ++i) {
      if (statement[i] == '\\' && in_string)
        ++i;
      else if (statement[i] == '"')
        in_string = !in_string;
      else if (!in_string && (statement[i] == '[' || (statement[i] == '<' && is_bracket(statement, i))))
        ++depth;
      else if (!in_string && (statement[i] == ']' || (statement[i] == '>' && is_bracket(statement, i))))
        --depth;
      else if (statement[i] == ' ' && !in_string && i > begin && statement[i - 1] != ' ') {
        if (first == 0) first = i;
        if (indent + i - begin > line_width) break;
        space = i;
        if (statement[i - 1] == ',' && depth <= 0) comma = i;
      }
    }
    const size_t at = comma > begin + line_width / 2 ? comma : space > 0 ? space : first;
    if (at == 0) break;
    result.append(indent, ' ').append(statement.substr(begin, at - begin)) += '\n';
    begin = at + 1;
    indent = continued_indent;
  }
  return result.append(indent, ' ').append(statement.substr(begin));
}

}  // namespace stepgraph
