// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/tokens.h"
#include <fmt/core.h>
#include <algorithm>
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"

namespace stepgraph {
namespace {

int64_t width(TokenFormat format) {
  switch (format) {
    case TokenFormat::Bytes: return 1;
    case TokenFormat::U16: return 2;
    case TokenFormat::U32: return 4;
  }
  throw InternalError("tokens: unknown format");
}

uint32_t token(const std::vector<std::byte>& bytes, TokenFormat format, int64_t index) {
  const size_t count = static_cast<size_t>(width(format)), at = static_cast<size_t>(index) * count;
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= std::to_integer<uint32_t>(bytes[at + i]) << (8 * i);
  return value;
}

}  // namespace

TokenStream::TokenStream(std::vector<std::byte> bytes, TokenFormat format, const std::string& file) : format_(format) {
  const auto count = static_cast<int64_t>(bytes.size());
  if (count % width(format) != 0) throw UserError(fmt::format("{}: {} bytes, wanted a multiple of {} for its tokens", file, count, width(format)));
  size_ = count / width(format);
  uint32_t largest = 0;
  for (int64_t i = 0; i < size_; ++i) {
    const uint32_t value = token(bytes, format, i);
    if (value > static_cast<uint32_t>(INT32_MAX)) throw UserError(fmt::format("{}: token {} is {}, wanted at most {}", file, i, value, INT32_MAX));
    largest = std::max(largest, value);
  }
  largest_ = size_ > 0 ? static_cast<int32_t>(largest) : -1;
  bytes_ = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

int32_t TokenStream::at(int64_t index) const { return static_cast<int32_t>(token(*bytes_, format_, begin_ + index)); }

void TokenStream::copy(int64_t begin, std::span<int32_t> to) const {
  const auto count = static_cast<int64_t>(to.size());
  SG_CHECK(begin >= 0 && count <= size_ && begin <= size_ - count);
  for (int64_t i = 0; i < count; ++i) to[static_cast<size_t>(i)] = at(begin + i);
}

TokenStream TokenStream::part(int64_t begin, int64_t end) const {
  SG_CHECK(0 <= begin && begin <= end && end <= size_);
  TokenStream out = *this;
  out.begin_ = begin_ + begin;
  out.size_ = end - begin;
  return out;
}

TokenStream read_tokens(const std::string& path, TokenFormat format) {
  std::vector<std::byte> bytes = read_file_bytes(path);
  if (bytes.empty()) throw UserError(fmt::format("{}: is empty, wanted tokens", path));
  return {std::move(bytes), format, path};
}

void check_vocabulary(const TokenStream& tokens, int64_t vocabulary, const std::string& file) {
  if (tokens.largest() < vocabulary) return;
  throw UserError(fmt::format("{}: has the token {}, the vocabulary ends at {}", file, tokens.largest(), vocabulary - 1));
}

TokenSplit split_last(const TokenStream& tokens, int64_t parts) {
  if (parts < 1) throw UserError(fmt::format("cannot hold out one of {} parts", parts));
  const int64_t kept = tokens.size() - tokens.size() / parts;
  return {tokens.part(0, kept), tokens.part(kept, tokens.size())};
}

}  // namespace stepgraph
