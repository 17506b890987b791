// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <charconv>
#include <cmath>
#include <optional>
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/train/data/arrays.h"

namespace stepgraph {
namespace {

std::string_view trimmed(std::string_view text, char delimiter) {
  const auto blank = [&](char c) { return (c == ' ' || c == '\t') && c != delimiter; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<double> number(std::string_view field) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  double value = 0;
  const auto [end, status] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (status != std::errc{} || end != field.data() + field.size()) return std::nullopt;
  return value;
}

/// Cuts a text into rows and fields and knows the place of each for messages.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& file, char delimiter) : text_(text), file_(file), delimiter_(delimiter) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);  // byte-order mark
    // Empty lines are accepted at the end only.
    while (!text_.empty() && (text_.back() == '\n' || text_.back() == '\r')) text_.remove_suffix(1);
  }

  /// The fields of the next line, or false at the end.
  bool next(std::vector<std::string_view>& fields) {
    fields.clear();
    if (at_ >= text_.size()) return false;
    ++line_;
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string_view line = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (true) {
      const bool more = take_field(line, fields);
      if (!more) return true;
    }
  }
  int64_t line() const { return line_; }
  [[noreturn]] void fail(size_t column, const std::string& what) const {
    throw UserError(fmt::format("{}: row {}, column {}: {}", file_, line_, column, what));
  }

 private:
  bool take_field(std::string_view& line, std::vector<std::string_view>& fields) {
    std::string_view field;
    const std::string_view start = trimmed(line, delimiter_);
    if (start.starts_with('"')) {
      const size_t open = static_cast<size_t>(start.data() - line.data());
      const size_t close = line.find('"', open + 1);
      if (close == std::string_view::npos) fail(fields.size() + 1, "a double quote is not closed on its line");
      field = trimmed(line.substr(open + 1, close - open - 1), delimiter_);
      line.remove_prefix(close + 1);
      while (!line.empty() && line.front() != delimiter_ && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
      if (!line.empty() && line.front() != delimiter_) fail(fields.size() + 1, "text behind a closing double quote");
    } else {
      const size_t end = std::min(line.find(delimiter_), line.size());
      field = trimmed(line.substr(0, end), delimiter_);
      line.remove_prefix(end);
    }
    fields.push_back(field);
    if (line.empty()) return false;
    line.remove_prefix(1);
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  char delimiter_;
  size_t at_ = 0;
  int64_t line_ = 0;
};

bool is_header(const std::vector<std::string_view>& fields, CsvOptions::Header option) {
  switch (option) {
    case CsvOptions::Header::Present: return true;
    case CsvOptions::Header::Absent: return false;
    case CsvOptions::Header::Auto: break;
  }
  for (const std::string_view field : fields)
    if (number(field)) return false;
  return true;
}

}  // namespace

CsvTable parse_csv(std::string_view text, const std::string& file, const CsvOptions& options) {
  if (options.delimiter == '"' || options.delimiter == '\n' || options.delimiter == '\r')
    throw UserError(fmt::format("{}: {} cannot be the delimiter", file, quoted_name({&options.delimiter, 1})));
  CsvReader reader(text, file, options.delimiter);
  CsvTable table;
  std::vector<std::string_view> fields;
  if (!reader.next(fields)) throw UserError(fmt::format("{}: is empty, wanted rows of numbers", file));
  const size_t width = fields.size();
  bool more = true;
  if (is_header(fields, options.header)) {
    for (const std::string_view field : fields) table.columns.emplace_back(field);
    more = reader.next(fields);
    if (!more) throw UserError(fmt::format("{}: no row of numbers behind the header", file));
  }

  std::vector<double> values;
  int64_t rows = 0;
  for (; more; more = reader.next(fields)) {
    if (fields.size() != width) throw UserError(fmt::format("{}: row {} has {} columns, the rows before have {}", file, reader.line(), fields.size(), width));
    for (size_t c = 0; c < width; ++c) {
      const std::optional<double> value = number(fields[c]);
      if (!value) reader.fail(c + 1, fmt::format("found {}, wanted a number", quoted_name(fields[c])));
      values.push_back(*value);
    }
    ++rows;
  }
  table.values = Literal::from_doubles(DType::F64, {rows, static_cast<int64_t>(width)}, values);
  return table;
}

CsvTable read_csv(const std::string& path, const CsvOptions& options) { return parse_csv(read_file(path), path, options); }

Literal integer_column(const CsvTable& table, int64_t column, const std::string& file) {
  const int64_t rows = table.values.sizes()[0], columns = table.values.sizes()[1];
  SG_CHECK(column >= 0 && column < columns);
  const auto values = table.values.as<double>();
  Literal out = Literal::uninitialised(DType::I64, {rows});
  const auto to = out.as_mutable<int64_t>();
  for (int64_t r = 0; r < rows; ++r) {
    const double value = values[static_cast<size_t>(r * columns + column)];
    if (!(std::abs(value) < 0x1p53) || value != std::trunc(value))
      throw UserError(fmt::format("{}: row {}, column {}: found {}, wanted an integer", file, r + 1 + (table.columns.empty() ? 0 : 1), column + 1, value));
    to[static_cast<size_t>(r)] = static_cast<int64_t>(value);
  }
  return out;
}

}  // namespace stepgraph
