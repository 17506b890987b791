// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/npy.h"
#include <fmt/core.h>
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/arrays.h"

namespace stepgraph {
namespace {

constexpr char magic[] = "\x93NUMPY";
constexpr int64_t magic_bytes = 6;
constexpr int64_t npy_header_bytes_max = 1 << 20;
constexpr size_t rank_max = 64;

struct ElementRow {
  std::string_view code;
  NpyElement element;
  size_t bytes;
  DType dtype;  // in memory
};
constexpr ElementRow element_rows[] = {
    {"f8", NpyElement::F64, 8, DType::F64}, {"f4", NpyElement::F32, 4, DType::F32}, {"f2", NpyElement::F16, 2, DType::F16},
    {"i8", NpyElement::I64, 8, DType::I64}, {"i4", NpyElement::I32, 4, DType::I32}, {"i2", NpyElement::I16, 2, DType::I32},
    {"i1", NpyElement::I8, 1, DType::I8},   {"u8", NpyElement::U64, 8, DType::I64}, {"u4", NpyElement::U32, 4, DType::I64},
    {"u2", NpyElement::U16, 2, DType::I32}, {"u1", NpyElement::U8, 1, DType::U8},   {"b1", NpyElement::Bool, 1, DType::Bool}};

const ElementRow& row_of(NpyElement element) {
  for (const ElementRow& row : element_rows)
    if (row.element == element) return row;
  throw InternalError("npy: element without a row");
}

/// Reads the one dictionary of a header: string keys; values are strings, booleans and tuples of integers.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyHeader read() {
    expect('{');
    bool seen_descr = false, seen_order = false, seen_shape = false;
    while (!accept('}')) {
      const std::string key(string());
      expect(':');
      if (key == "descr") {
        once(seen_descr, key);
        descr();
      } else if (key == "fortran_order") {
        once(seen_order, key);
        header_.fortran_order = boolean();
      } else if (key == "shape") {
        once(seen_shape, key);
        shape();
      } else {
        fail(fmt::format("unknown key {}, wanted descr, fortran_order and shape", quoted_name(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("found text behind the dictionary");
    if (!seen_descr) fail("key descr is missing");
    if (!seen_order) fail("key fortran_order is missing");
    if (!seen_shape) fail("key shape is missing");
    return header_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw UserError(fmt::format("{}: npy header: {}", where_, what)); }
  void once(bool& seen, const std::string& key) const {
    if (seen) fail(fmt::format("key {} is given twice", key));
    seen = true;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }
  bool accept(char wanted) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (accept(wanted)) return;
    const std::string found = at_ < text_.size() ? quoted_name(text_.substr(at_, 1)) : "its end";
    fail(fmt::format("found {} at byte {}, wanted '{}'", found, at_, wanted));
  }
  std::string_view string() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail(fmt::format("wanted a quoted string at byte {}", at_));
    const char quote = text_[at_++];
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("a string does not end");
    const std::string_view value = text_.substr(at_, end - at_);
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    fail("fortran_order is neither True nor False");
  }
  void descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      throw UnsupportedElements(fmt::format("{}: npy header: structured elements are not supported, wanted one number for each element", where_));
    const std::string_view full = string();
    std::string_view code = full;
    char order = '<';
    if (!code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos) {
      order = code[0];
      code.remove_prefix(1);
    }
    for (const ElementRow& row : element_rows)
      if (row.code == code) {
        header_.element = row.element;
        header_.big_endian = order == '>';
        return;
      }
    throw UnsupportedElements(
        fmt::format("{}: npy header: element type {} is not supported, wanted one of f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 b1", where_, quoted_name(full)));
  }
  void shape() {
    expect('(');
    while (!accept(')')) {
      if (header_.sizes.size() >= rank_max) fail(fmt::format("shape has more than {} sizes", rank_max));
      header_.sizes.push_back(integer());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }
  int64_t integer() {
    skip_space();
    int64_t value = 0;
    const size_t begin = at_;
    if (at_ < text_.size() && text_[at_] == '-') fail("a size is negative");
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value))
        fail("a size overflows 64 bits");
    if (at_ == begin) fail(fmt::format("wanted a size at byte {}", at_));
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // a long integer of Python 2
    return value;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  NpyHeader header_;
};

struct HeaderRead {
  NpyHeader header;
  int64_t bytes = 0;  // of the member, up to the data
};

HeaderRead read_header(int64_t member_bytes, const ByteSource& next, const std::string& where) {
  const auto too_short = [&] { throw UserError(fmt::format("{}: the member has {} bytes, too few for an npy header", where, member_bytes)); };
  std::byte start[magic_bytes + 2];
  if (member_bytes < static_cast<int64_t>(sizeof start)) too_short();
  next(start);
  if (std::memcmp(start, magic, magic_bytes) != 0) throw UserError(fmt::format("{}: does not begin as an npy array", where));
  const int major = std::to_integer<int>(start[magic_bytes]);
  if (major < 1 || major > 3) throw UserError(fmt::format("{}: npy format version {}, wanted 1, 2 or 3", where, major));

  std::byte length_bytes[4] = {};
  const size_t length_size = major == 1 ? 2 : 4;
  int64_t used = static_cast<int64_t>(sizeof start + length_size);
  if (member_bytes < used) too_short();
  next({length_bytes, length_size});
  int64_t length = 0;
  for (size_t i = 0; i < length_size; ++i) length |= int64_t{std::to_integer<int64_t>(length_bytes[i])} << (8 * i);
  if (length > member_bytes - used || length > npy_header_bytes_max)
    throw UserError(fmt::format("{}: npy header of {} bytes, the member has {} and at most {} are accepted", where, length, member_bytes, npy_header_bytes_max));
  std::string text(static_cast<size_t>(length), '\0');
  next(std::as_writable_bytes(std::span(text)));
  used += length;
  return {DictionaryReader(text, where).read(), used};
}

/// Elements as they are in the file, swapped to little-endian, widened to the dtype in memory.
template <class From, class To>
void widen(const std::vector<std::byte>& raw, Literal& out, const std::string& where) {
  const auto to = out.as_mutable<To>();
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, raw.data() + i * sizeof(From), sizeof(From));
    if constexpr (sizeof(From) == sizeof(To))
      if (value > static_cast<From>(INT64_MAX)) throw UserError(fmt::format("{}: element {} is {}, more than a 64-bit signed integer holds", where, i, value));
    to[i] = static_cast<To>(value);
  }
}

void swap_elements(std::span<std::byte> bytes, size_t element_bytes) {
  for (size_t i = 0; i + element_bytes <= bytes.size(); i += element_bytes)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.begin() + static_cast<std::ptrdiff_t>(i + element_bytes));
}

Literal widened(NpyElement element, const Sizes& sizes, const std::vector<std::byte>& raw, const std::string& where) {
  Literal out = Literal::uninitialised(row_of(element).dtype, sizes);
  switch (element) {
    case NpyElement::I16: widen<int16_t, int32_t>(raw, out, where); break;
    case NpyElement::U16: widen<uint16_t, int32_t>(raw, out, where); break;
    case NpyElement::U32: widen<uint32_t, int64_t>(raw, out, where); break;
    case NpyElement::U64: widen<uint64_t, int64_t>(raw, out, where); break;
    case NpyElement::F64:
    case NpyElement::F32:
    case NpyElement::F16:
    case NpyElement::I64:
    case NpyElement::I32:
    case NpyElement::I8:
    case NpyElement::U8:
    case NpyElement::Bool: throw InternalError("npy: element needs no widening");
  }
  return out;
}

/// From column-major to row-major: `in` has the sizes of `sizes` reversed.
Literal transposed(const Literal& in, const Sizes& sizes) {
  Literal out = Literal::uninitialised(in.dtype(), sizes);
  const size_t width = size_bytes(in.dtype());
  std::vector<int64_t> strides(sizes.size(), 1), index(sizes.size(), 0);
  for (size_t d = 1; d < sizes.size(); ++d) strides[d] = strides[d - 1] * sizes[d - 1];
  std::byte* to = out.mutable_data();
  int64_t from = 0;
  for (int64_t i = 0; i < out.count(); ++i) {
    std::memcpy(to + static_cast<size_t>(i) * width, in.data() + static_cast<size_t>(from) * width, width);
    for (size_t d = sizes.size(); d-- > 0;) {
      from += strides[d];
      if (++index[d] < sizes[d]) break;
      from -= strides[d] * sizes[d];
      index[d] = 0;
    }
  }
  return out;
}

std::string_view code_of(DType dtype) {
  switch (dtype) {
    case DType::F64: return "<f8";
    case DType::F32: return "<f4";
    case DType::F16: return "<f2";
    case DType::I64: return "<i8";
    case DType::I32: return "<i4";
    case DType::I8: return "|i1";
    case DType::U8: return "|u1";
    case DType::Bool: return "|b1";
    case DType::BF16: break;
  }
  throw InternalError("npy: dtype without a code");
}

}  // namespace

Literal read_npy(int64_t member_bytes, const ByteSource& next, const std::string& where) {
  const HeaderRead start = read_header(member_bytes, next, where);
  const NpyHeader& header = start.header;
  const ElementRow& row = row_of(header.element);
  // Checked for the type in memory, which is at least as wide as the one in the file.
  checked_bytes(row.dtype, header.sizes, where);
  const int64_t file_bytes = element_count(header.sizes) * static_cast<int64_t>(row.bytes);
  if (file_bytes != member_bytes - start.bytes)
    throw UserError(fmt::format("{}: {} bytes of data, wanted {} for {}", where, member_bytes - start.bytes, file_bytes, type_text(row.dtype, header.sizes)));
  Literal value;
  if (row.bytes == size_bytes(row.dtype) && header.element != NpyElement::U64) {
    value = Literal::uninitialised(row.dtype, header.sizes);
    const std::span<std::byte> bytes(value.mutable_data(), value.byte_count());
    next(bytes);
    if (header.big_endian) swap_elements(bytes, row.bytes);
  } else {
    std::vector<std::byte> raw(static_cast<size_t>(file_bytes));
    next(raw);
    if (header.big_endian) swap_elements(raw, row.bytes);
    value = widened(header.element, header.sizes, raw, where);
  }
  check_bools(value, where);
  return header.fortran_order && header.sizes.size() > 1 ? transposed(value, header.sizes) : value;
}

std::vector<std::byte> print_npy(const Literal& value) {
  std::string shape;
  for (const int64_t size : value.sizes()) shape += fmt::format("{}, ", size);
  if (value.rank() > 1) shape.resize(shape.size() - 2);
  if (value.rank() == 1) shape.pop_back();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", code_of(value.dtype()), shape);
  const auto prefix = [&](size_t length_bytes) { return static_cast<size_t>(magic_bytes) + 2 + length_bytes; };
  const size_t length_bytes = text.size() > 65000 ? 4 : 2;
  // Data begins at a multiple of 64 and the header ends in a newline, as NumPy writes it.
  const size_t data_at = (prefix(length_bytes) + text.size() + 1 + 63) / 64 * 64;
  text.append(data_at - prefix(length_bytes) - text.size() - 1, ' ');
  text += '\n';

  std::vector<std::byte> out(data_at + value.byte_count());
  std::memcpy(out.data(), magic, magic_bytes);
  out[magic_bytes] = std::byte{static_cast<unsigned char>(length_bytes == 2 ? 1 : 2)};
  for (size_t i = 0; i < length_bytes; ++i) out[magic_bytes + 2 + i] = static_cast<std::byte>(text.size() >> (8 * i) & 0xff);
  std::memcpy(out.data() + prefix(length_bytes), text.data(), text.size());
  if (value.byte_count() > 0) std::memcpy(out.data() + data_at, value.data(), value.byte_count());
  return out;
}

}  // namespace stepgraph
