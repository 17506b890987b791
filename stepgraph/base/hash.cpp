// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/hash.h"

#include <xxhash.h>

#include <bit>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

void append_hex(std::string& text, uint64_t value) {
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
}

}  // namespace

std::string Hash128::text() const {
  std::string result;
  append_hex(result, high);
  append_hex(result, low);
  return result;
}

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
  State() { SG_CHECK(xxh != nullptr && XXH3_128bits_reset(xxh) == XXH_OK); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void raw(const void* data, size_t bytes) {
    if (bytes > 0) SG_CHECK(XXH3_128bits_update(xxh, data, bytes) == XXH_OK);
  }
  /// Little-endian on every machine.
  void word(uint64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    raw(bytes, sizeof bytes);
  }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;

Hasher& Hasher::bytes(std::span<const std::byte> data) {
  state_->word(data.size());
  state_->raw(data.data(), data.size());
  return *this;
}
Hasher& Hasher::text(std::string_view value) {
  state_->word(value.size());
  state_->raw(value.data(), value.size());
  return *this;
}
Hasher& Hasher::number(int64_t value) {
  state_->word(static_cast<uint64_t>(value));
  return *this;
}
Hasher& Hasher::real(double value) {
  state_->word(std::bit_cast<uint64_t>(value));
  return *this;
}
Hasher& Hasher::hash(const Hash128& value) {
  state_->word(value.high);
  state_->word(value.low);
  return *this;
}
Hash128 Hasher::finish() const {
  const XXH128_hash_t result = XXH3_128bits_digest(state_->xxh);
  return {result.high64, result.low64};
}

Hash128 hash_bytes(std::span<const std::byte> data) {
  const XXH128_hash_t result = XXH3_128bits(data.data(), data.size());
  return {result.high64, result.low64};
}

}  // namespace stepgraph
