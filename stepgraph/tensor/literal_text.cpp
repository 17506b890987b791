// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/literal_text.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

static_assert(std::endian::native == std::endian::little, "raw elements are written as they lie in memory, little-endian");

constexpr int64_t listed_max = 64;  ///< elements that are written out one by one
constexpr int64_t splat_min = 5;    ///< fewer equal elements are as short when listed

constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64_text(const std::byte* data, size_t count) {
  std::string result;
  result.reserve((count + 2) / 3 * 4);
  for (size_t i = 0; i < count; i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) bits = bits << 8 | (i + j < count ? static_cast<uint32_t>(data[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) result += i + j > count ? '=' : base64_digits[bits >> (18 - 6 * j) & 63];
  }
  return result;
}

/// Writes `size` bytes; false if the text is not exactly their base64.
bool read_base64(std::string_view text, std::byte* data, size_t size) {
  if (text.size() % 4 != 0 || text.size() / 4 != (size + 2) / 3) return false;
  std::array<int8_t, 256> values;
  values.fill(-1);
  for (size_t i = 0; i < base64_digits.size(); ++i) values[static_cast<unsigned char>(base64_digits[i])] = static_cast<int8_t>(i);
  for (size_t i = 0, at = 0; i < size; i += 3, at += 4) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 4; ++j) {
      const bool padding = i + j > size;
      const int8_t value = values[static_cast<unsigned char>(text[at + j])];
      if (padding ? text[at + j] != '=' : value < 0) return false;
      bits = bits << 6 | (padding ? 0 : static_cast<uint32_t>(value));
    }
    for (size_t j = 0; j < 3; ++j) {
      const auto byte = static_cast<std::byte>(bits >> (16 - 8 * j) & 255);
      if (i + j < size) data[i + j] = byte;
      else if (byte != std::byte{0}) return false;
    }
  }
  return true;
}

bool is_nan(const Literal& literal, int64_t index) { return is_floating(literal.dtype()) && std::isnan(literal.at(index)); }

/// What the word "nan" reads as.
Literal plain_nan(DType dtype) { return Literal::scalar(dtype, std::numeric_limits<double>::quiet_NaN()); }

/// The elements as text lose nothing: no NaN with a payload or a sign, no bool but 0 and 1.
bool is_plain(const Literal& literal, int64_t count) {
  const size_t size = size_bytes(literal.dtype());
  const Literal nan = plain_nan(is_floating(literal.dtype()) ? literal.dtype() : DType::F32);
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* element = literal.data() + static_cast<size_t>(i) * size;
    if (is_nan(literal, i) && std::memcmp(element, nan.data(), size) != 0) return false;
    if (literal.dtype() == DType::Bool && static_cast<uint8_t>(*element) > 1) return false;
  }
  return true;
}

/// "f32[2, 3]"
std::string type_text(const Literal& literal) {
  std::string result(name(literal.dtype()));
  result += '[';
  for (size_t i = 0; i < literal.rank(); ++i) result += (i > 0 ? ", " : "") + std::to_string(literal.sizes()[i]);
  return result + ']';
}

float read_f32(TextScanner& scanner) {
  scanner.peek();
  TextScanner start = scanner;
  const size_t begin = scanner.offset();
  const double value = scanner.real();
  if (!std::isfinite(value)) return static_cast<float>(value);
  // From the text, not from the double: rounding twice can miss.
  const std::string_view number = scanner.text().substr(begin, scanner.offset() - begin);
  float result = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), result);
  if (error == std::errc::result_out_of_range) start.fail("number is out of the range of f32");
  SG_CHECK(error == std::errc{} && end == number.data() + number.size());
  return result;
}

double read_float(TextScanner& scanner, DType dtype) {
  scanner.peek();
  TextScanner start = scanner;
  const double value = scanner.real();
  if (std::isfinite(value) && !std::isfinite(round_to(dtype, value))) start.fail("number is out of the range of " + std::string(name(dtype)));
  return value;
}

int64_t read_integer(TextScanner& scanner, DType dtype) {
  if (dtype == DType::Bool) {
    if (scanner.try_consume("true")) return 1;
    if (scanner.try_consume("false")) return 0;
    scanner.fail_wanted("true or false");
  }
  scanner.peek();
  TextScanner start = scanner;
  const int64_t value = scanner.integer();
  if (Literal::integer(dtype, value).integer_at(0) != value) start.fail("number is out of the range of " + std::string(name(dtype)));
  return value;
}

/// Elements of any dtype, in the type that holds them without loss.
class Elements {
 public:
  Elements(TextScanner& scanner, DType dtype) : scanner_(scanner), dtype_(dtype) {}

  void read() {
    if (dtype_ == DType::F32) singles_.push_back(read_f32(scanner_));
    else if (is_floating(dtype_)) doubles_.push_back(read_float(scanner_, dtype_));
    else integers_.push_back(read_integer(scanner_, dtype_));
  }
  int64_t count() const { return static_cast<int64_t>(singles_.size() + doubles_.size() + integers_.size()); }
  Literal literal(Sizes sizes) const {
    if (dtype_ == DType::F32) return Literal::of<float>(std::move(sizes), singles_);
    if (is_floating(dtype_)) return Literal::from_doubles(dtype_, std::move(sizes), doubles_);
    return Literal::from_integers(dtype_, std::move(sizes), integers_);
  }

 private:
  TextScanner& scanner_;
  DType dtype_;
  std::vector<float> singles_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_;
};

Literal read_list(TextScanner& scanner, DType dtype, const Sizes& sizes, int64_t count) {
  scanner.expect("{");
  Elements elements(scanner, dtype);
  while (!scanner.next_is("}")) {
    if (elements.count() > 0) scanner.expect(",");
    if (elements.count() == count) scanner.fail("found more than the " + std::to_string(count) + " elements that the sizes say");
    elements.read();
  }
  if (elements.count() != count)
    scanner.fail("found " + std::to_string(elements.count()) + " elements, wanted the " + std::to_string(count) + " that the sizes say");
  scanner.expect("}");
  return elements.literal(sizes);
}

Literal read_splat(TextScanner& scanner, DType dtype, const Sizes& sizes, int64_t count, int64_t& splat_bytes) {
  const int64_t size = static_cast<int64_t>(size_bytes(dtype));
  if (count > splat_bytes / size)
    scanner.fail("splat of " + std::to_string(count) + " elements: the splats of one text may have " + std::to_string(splat_bytes_max) +
                 " bytes in all, use a broadcast of a scalar");
  splat_bytes -= count * size;
  Elements element(scanner, dtype);
  element.read();
  const Literal value = element.literal({});
  Literal result = Literal::uninitialised(dtype, sizes);
  std::byte* data = result.mutable_data();
  for (int64_t i = 0; i < count; ++i) std::memcpy(data + i * size, value.data(), static_cast<size_t>(size));
  return result;
}

Literal read_raw(TextScanner& scanner, DType dtype, const Sizes& sizes, int64_t count) {
  scanner.peek();
  TextScanner start = scanner;
  const std::string encoded = scanner.quoted_string();
  const auto size = static_cast<int64_t>(size_bytes(dtype));
  // The text bounds what is allocated.
  if (count > static_cast<int64_t>(encoded.size()) / size + 1)
    start.fail("found " + std::to_string(encoded.size()) + " base64 digits, too few for " + std::to_string(count) + " elements");
  Literal result(dtype, sizes);
  if (!read_base64(encoded, result.mutable_data(), result.byte_count()))
    start.fail("wanted the base64 of exactly " + std::to_string(result.byte_count()) + " bytes");
  for (int64_t i = 0; dtype == DType::Bool && i < count; ++i)
    if (const auto byte = static_cast<unsigned>(result.data()[i]); byte > 1) start.fail("bool element " + std::to_string(i) + " is " + std::to_string(byte) + ", wanted 0 or 1");
  return result;
}

Sizes read_sizes(TextScanner& scanner) {
  Sizes sizes;
  scanner.expect("[");
  while (!scanner.next_is("]")) {
    if (!sizes.empty()) scanner.expect(",");
    sizes.push_back(scanner.integer());
  }
  scanner.expect("]");
  return sizes;
}

}  // namespace

Literal read_literal(TextScanner& scanner, int64_t& splat_bytes) {
  scanner.peek();
  TextScanner start = scanner;
  const std::string dtype_name = scanner.identifier("a literal as f32[2] {1, 2}");
  const auto dtype = dtype_from_name(dtype_name);
  if (!dtype) start.fail("unknown dtype '" + dtype_name + "', wanted f64, f32, bf16, f16, i64, i32, i8, u8 or bool");
  const Sizes sizes = read_sizes(scanner);
  int64_t count = 0;
  try {
    count = element_count(sizes);
  } catch (const UserError& error) {
    start.fail(error.what());
  }
  if (scanner.next_is("{")) return read_list(scanner, *dtype, sizes, count);
  if (scanner.try_consume("splat")) return read_splat(scanner, *dtype, sizes, count, splat_bytes);
  if (scanner.try_consume("base64")) return read_raw(scanner, *dtype, sizes, count);
  scanner.fail_wanted("'{', 'splat' or 'base64'");
}

std::string literal_text(const Literal& literal) {
  const int64_t count = literal.count();
  if (count >= splat_min && is_splat(literal) && is_plain(literal, 1)) {
    const std::string element = literal.text(1);  // "f32[3, 3] {0, ...}"
    const size_t begin = element.find('{') + 1;
    return type_text(literal) + " splat " + element.substr(begin, element.find_first_of(",}", begin) - begin);
  }
  if (count <= listed_max && is_plain(literal, count)) return literal.text(listed_max);
  return type_text(literal) + " base64 \"" + base64_text(literal.data(), literal.byte_count()) + "\"";
}

Literal parse_literal(std::string_view text, const std::string& name) {
  TextScanner scanner(text, name);
  int64_t splat_bytes = splat_bytes_max;
  Literal result = read_literal(scanner, splat_bytes);
  scanner.expect_end();
  return result;
}

}  // namespace stepgraph
