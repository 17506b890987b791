// SPDX-License-Identifier: Apache-2.0
// Streams of token ids: a text file taken byte by byte, or a flat file of little-endian u16 or u32 without a header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stepgraph {

enum class TokenFormat { Bytes, U16, U32 };

/// Immutable; copies share the bytes. Held in the file's own width: a text of 1 GB takes 1 GB.
class TokenStream {
 public:
  /// UserError if the size is no multiple of the width or a token exceeds a 31-bit id.
  TokenStream(std::vector<std::byte> bytes, TokenFormat format, const std::string& file);

  int64_t size() const { return size_; }
  int32_t at(int64_t index) const;  ///< index is not checked
  /// Tokens [begin, begin + to.size()); checked.
  void copy(int64_t begin, std::span<int32_t> to) const;
  int32_t largest() const { return largest_; }  ///< over the whole file, -1 if it is empty
  /// The part [begin, end); shares the bytes.
  TokenStream part(int64_t begin, int64_t end) const;

 private:
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  TokenFormat format_;
  int64_t begin_ = 0, size_ = 0;  // in tokens
  int32_t largest_ = -1;
};

TokenStream read_tokens(const std::string& path, TokenFormat format);
/// UserError naming the file unless every token is below `vocabulary`.
void check_vocabulary(const TokenStream& tokens, int64_t vocabulary, const std::string& file);

/// The first part and the held-out last `1 / parts` of the stream (rounded down), e.g. parts = 10.
struct TokenSplit {
  TokenStream train, held_out;
};
TokenSplit split_last(const TokenStream& tokens, int64_t parts);

}  // namespace stepgraph
