// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/arrays.h"
#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include "stepgraph/base/error.h"
#include "stepgraph/base/printable.h"

namespace stepgraph {

const Literal* find_array(const NamedArrays& arrays, std::string_view name) {
  for (const auto& [array_name, value] : arrays)
    if (array_name == name) return &value;
  return nullptr;
}

std::string quoted_name(std::string_view text) {
  constexpr size_t shown_bytes_max = 80;
  if (text.size() <= shown_bytes_max) return "'" + printable(text) + "'";
  size_t end = shown_bytes_max;
  while (end > shown_bytes_max - 3 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not within a character
  return "'" + printable(text.substr(0, end)) + "...'";
}

std::string type_text(DType dtype, const Sizes& sizes) {
  constexpr size_t shown_sizes_max = 16;
  std::string out = fmt::format("{}[", name(dtype));
  for (size_t i = 0; i < std::min(sizes.size(), shown_sizes_max); ++i) out += fmt::format("{}{}", i ? ", " : "", sizes[i]);
  if (sizes.size() > shown_sizes_max) out += ", ...";
  return out + "]";
}

int64_t checked_bytes(DType dtype, const Sizes& sizes, const std::string& where) {
  int64_t bytes = static_cast<int64_t>(size_bytes(dtype));
  // A zero anywhere must not hide a product that overflows before it: the strides of such an array would overflow too.
  for (const int64_t size : sizes) {
    if (size < 0) throw UserError(fmt::format("{}: size {} is negative in {}", where, size, type_text(dtype, sizes)));
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes))
      throw UserError(fmt::format("{}: the size of {} overflows 64 bits", where, type_text(dtype, sizes)));
  }
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end() ? 0 : bytes;
}

Literal converted_in_range(const Literal& value, DType dtype, const std::string& where) {
  Literal result = value.converted(dtype);
  const auto fail = [&](int64_t i, const std::string& found) {
    throw UserError(fmt::format("{}: element {} is {}, which does not fit {}", where, i, found, name(dtype)));
  };
  if (is_floating(value.dtype()) && is_floating(dtype)) {
    for (int64_t i = 0; i < value.count(); ++i)
      if (std::isinf(result.at(i)) && !std::isinf(value.at(i))) fail(i, fmt::format("{:g}", value.at(i)));
  } else if (is_integer(value.dtype()) && is_integer(dtype)) {
    for (int64_t i = 0; i < value.count(); ++i)
      if (value.integer_at(i) != result.integer_at(i)) fail(i, std::to_string(value.integer_at(i)));
  }
  return result;
}

void check_bools(const Literal& value, const std::string& where) {
  if (value.dtype() != DType::Bool) return;
  const std::byte* data = value.data();
  for (int64_t i = 0; i < value.count(); ++i) {
    const int byte = std::to_integer<int>(data[i]);
    if (byte > 1) throw UserError(fmt::format("{}: bool element {} is {}, wanted 0 or 1", where, i, byte));
  }
}

}  // namespace stepgraph
