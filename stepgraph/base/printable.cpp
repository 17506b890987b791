// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/printable.h"

#include <cstddef>
#include <cstdint>

namespace stepgraph {
namespace {

/// Bytes of the character at the start of `text`; 0 if it is no character of UTF-8 (RFC 3629: no surrogates, no longer forms).
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t count = first >= 0xc2 && first < 0xe0 ? 2 : (first & 0xf0) == 0xe0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (count == 0 || text.size() < count) return 0;
  for (size_t i = 1; i < count; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const uint8_t second = byte(1);
  const bool too_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool too_large = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return too_long || too_large ? 0 : count;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t count = character_bytes(text);
    if (count == 0) return false;
    text.remove_prefix(count);
  }
  return true;
}

std::string printable(std::string_view text, bool lines) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    const size_t count = character_bytes(text);
    const auto byte = static_cast<uint8_t>(text[0]);
    const bool stays = lines && (byte == '\n' || byte == '\t');
    if (count == 0 || ((byte < 0x20 || byte == 0x7f) && !stays))
      result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    else
      result += text.substr(0, count);
    text.remove_prefix(count == 0 ? 1 : count);
  }
  return result;
}

}  // namespace stepgraph
