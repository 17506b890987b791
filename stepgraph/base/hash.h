// SPDX-License-Identifier: Apache-2.0
// Stable 128-bit content hashes (XXH3 of the xxHash library): equal bytes give equal hashes on every machine. Not cryptographic.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace stepgraph {

struct Hash128 {
  uint64_t high = 0, low = 0;
  /// 32 lower-case hexadecimal digits.
  std::string text() const;
  auto operator<=>(const Hash128&) const = default;
};

/// Streams values into one hash. Each value is preceded by its length where it has one, so that ("ab","c") differs from ("a","bc").
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  Hasher& bytes(std::span<const std::byte> data);
  Hasher& text(std::string_view value);
  Hasher& number(int64_t value);
  Hasher& real(double value);  ///< by bit pattern
  Hasher& hash(const Hash128& value);
  Hash128 finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
Hash128 hash_bytes(std::span<const std::byte> data);

/// Mixes one more number into a hash for tables in memory, which are looked up and never iterated.
constexpr uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29);
}

}  // namespace stepgraph
