// SPDX-License-Identifier: Apache-2.0
// Memory from the operating system, zeroed, in huge pages where there are any.
#pragma once
#include <cstddef>
#include <utility>

namespace stepgraph {

/// What is placed in a mapping begins at a line of the cache.
inline constexpr size_t line_bytes = 64;
constexpr size_t padded(size_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }

class Mapping {
 public:
  Mapping() = default;
  /// SystemError if there is not so much.
  explicit Mapping(size_t bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace stepgraph
