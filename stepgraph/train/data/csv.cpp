// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
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

/// Digits with at most one point among them, from `at` on, which is moved behind them: the quotient of two numbers that f64 holds exactly, hence rounded as the
/// library does (Clinger, 1990), and several times as fast. False for all else.
bool take_short_number(const char*& at, const char* end, double& value) {
  static constexpr double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17};
  constexpr std::ptrdiff_t digits_max = 18;  // no overflow, with a point or without
  const bool negative = at != end && *at == '-';
  const char* const start = at + negative;
  uint64_t digits = 0;
  const auto take_digits = [&] {
    for (; at != end && static_cast<unsigned char>(*at - '0') < 10; ++at) digits = digits * 10 + static_cast<uint64_t>(*at - '0');
  };
  at = start;
  take_digits();
  std::ptrdiff_t fraction = 0;
  if (at == start) return false;
  if (at != end && *at == '.') {
    const char* const point = at++;
    take_digits();
    fraction = at - point - 1;
    if (fraction == 0) return false;
  }
  if (at - start > digits_max || digits > uint64_t{1} << 53) return false;
  value = static_cast<double>(digits) / powers[fraction];
  if (negative) value = -value;
  return true;
}

/// A line of short numbers alone, as most are. False says nothing: the line is to be looked at field by field.
bool read_short_numbers(std::string_view line, char delimiter, std::span<double> values) {
  if (delimiter == '.' || delimiter == '-' || (delimiter >= '0' && delimiter <= '9')) return false;
  const char *at = line.data(), *const end = at + line.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0 && (at == end || *at++ != delimiter)) return false;
    if (!take_short_number(at, end, values[i])) return false;
  }
  return at == end;
}

/// Where a csv comes from, twice from its start: to count its rows, and to read them.
class CsvSource {
 public:
  virtual ~CsvSource() = default;
  virtual int64_t bytes() const = 0;
  virtual void rewind() = 0;
  /// The next part; empty at the end.
  virtual std::string_view next() = 0;
};
class TextSource final : public CsvSource {
 public:
  explicit TextSource(std::string_view text) : text_(text) {}
  int64_t bytes() const override { return static_cast<int64_t>(text_.size()); }
  void rewind() override { is_read_ = false; }
  std::string_view next() override { return std::exchange(is_read_, true) ? std::string_view() : text_; }

 private:
  std::string_view text_;
  bool is_read_ = false;
};
class FileSource final : public CsvSource {
 public:
  explicit FileSource(const std::string& path) : file_(path), block_(block_bytes) {}
  int64_t bytes() const override { return file_.bytes(); }
  void rewind() override { file_.rewind(); }
  std::string_view next() override { return {block_.data(), file_.read(block_)}; }

 private:
  static constexpr size_t block_bytes = size_t{1} << 18;
  FileReader file_;
  std::vector<char> block_;
};

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
bool is_line_end(char c) { return c == '\n' || c == '\r'; }

/// Lines up to the last one that is not empty: empty lines are accepted at the end only.
int64_t count_lines(CsvSource& source) {
  int64_t ends = 0, lines = 0;
  source.rewind();
  for (std::string_view part = source.next(); !part.empty(); part = source.next()) {
    const auto last = std::find_if_not(part.rbegin(), part.rend(), is_line_end);
    const size_t used = static_cast<size_t>(part.rend() - last);  // with the last byte of a line that is not empty
    if (used > 0) lines = ends + std::count(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(used), '\n') + 1;
    ends += std::count(part.begin(), part.end(), '\n');
  }
  return lines;
}

/// Cuts a source into lines and fields and knows the place of each for messages.
class CsvReader {
 public:
  CsvReader(CsvSource& source, const std::string& file, char delimiter) : source_(source), file_(file), delimiter_(delimiter), lines_(count_lines(source)) {
    source_.rewind();
  }

  /// False at the end. The line stays until the next call.
  bool next() {
    if (line_ >= lines_) return false;
    text_ = take_line();
    if (++line_ == 1 && text_.starts_with(byte_order_mark)) text_.remove_prefix(byte_order_mark.size());
    while (text_.ends_with('\r')) {
      text_.remove_suffix(1);
      if (line_ < lines_) break;  // only at the end there may be more
    }
    return true;
  }
  std::string_view text() const { return text_; }
  void cut(std::vector<std::string_view>& fields) const {
    fields.clear();
    std::string_view rest = text_;
    while (take_field(rest, fields)) continue;
  }
  int64_t line() const { return line_; }
  int64_t lines() const { return lines_; }
  [[noreturn]] void fail(size_t column, const std::string& what) const {
    throw UserError(fmt::format("{}: row {}, column {}: {}", file_, line_, column, what));
  }

 private:
  /// From the part at hand, or put together where it goes over the end of one.
  std::string_view take_line() {
    kept_.clear();
    for (;;) {
      const size_t end = part_.find('\n');
      const std::string_view piece = part_.substr(0, end);
      if (end != std::string_view::npos) {
        part_.remove_prefix(end + 1);
        if (kept_.empty()) return piece;
        return kept_.append(piece);
      }
      kept_ += piece;
      part_ = source_.next();
      if (part_.empty()) return kept_;
    }
  }
  bool take_field(std::string_view& line, std::vector<std::string_view>& fields) const {
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

  CsvSource& source_;
  const std::string& file_;
  char delimiter_;
  int64_t lines_, line_ = 0;
  std::string_view part_, text_;
  std::string kept_;
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

std::vector<std::string> read_rows(CsvSource& source, const std::string& file, const CsvOptions& options, CsvRows& rows) {
  if (options.delimiter == '"' || options.delimiter == '\n' || options.delimiter == '\r')
    throw UserError(fmt::format("{}: {} cannot be the delimiter", file, quoted_name({&options.delimiter, 1})));
  CsvReader reader(source, file, options.delimiter);
  std::vector<std::string> names;
  std::vector<std::string_view> fields;
  if (!reader.next()) throw UserError(fmt::format("{}: is empty, wanted rows of numbers", file));
  reader.cut(fields);
  const size_t width = fields.size();
  bool more = true;
  int64_t count = reader.lines();
  if (is_header(fields, options.header)) {
    for (const std::string_view field : fields) names.emplace_back(field);
    more = reader.next();
    --count;
    if (!more) throw UserError(fmt::format("{}: no row of numbers behind the header", file));
  }
  // A number and what parts it from the next take two bytes: a file that is too short for its rows has one that will be refused.
  const bool fits = static_cast<int64_t>(width) <= (source.bytes() + 1) / 2 / count;
  rows.begin(fits ? count : 0, static_cast<int64_t>(width));
  std::vector<double> values(width);
  int64_t row = 0;
  for (; more; more = reader.next(), ++row) {
    if (!read_short_numbers(reader.text(), options.delimiter, values)) {
      reader.cut(fields);
      if (fields.size() != width) throw UserError(fmt::format("{}: row {} has {} columns, the rows before have {}", file, reader.line(), fields.size(), width));
      for (size_t c = 0; c < width; ++c) {
        const std::optional<double> value = number(fields[c]);
        if (!value) reader.fail(c + 1, fmt::format("found {}, wanted a number", quoted_name(fields[c])));
        values[c] = *value;
      }
    }
    if (fits) rows.row(values, reader.line());
  }
  if (row != count || !fits) throw SystemError(fmt::format("cannot read {}: it changed while it was read", file));
  return names;
}

/// All values as one array.
class WholeTable final : public CsvRows {
 public:
  void begin(int64_t rows, int64_t columns) override { values = Literal::uninitialised(DType::F64, {rows, columns}); }
  void row(std::span<const double> row, int64_t) override {
    std::copy(row.begin(), row.end(), values.as_mutable<double>().begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += row.size();
  }
  Literal values;

 private:
  size_t used_ = 0;
};

CsvTable read_table(CsvSource& source, const std::string& file, const CsvOptions& options) {
  WholeTable whole;
  std::vector<std::string> columns = read_rows(source, file, options, whole);
  return {std::move(columns), std::move(whole.values)};
}

}  // namespace

CsvTable parse_csv(std::string_view text, const std::string& file, const CsvOptions& options) {
  TextSource source(text);
  return read_table(source, file, options);
}

CsvTable read_csv(const std::string& path, const CsvOptions& options) {
  FileSource source(path);
  return read_table(source, path, options);
}

std::vector<std::string> read_csv(const std::string& path, CsvRows& rows, const CsvOptions& options) {
  FileSource source(path);
  return read_rows(source, path, options, rows);
}

}  // namespace stepgraph
