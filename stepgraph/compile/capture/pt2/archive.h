// SPDX-License-Identifier: Apache-2.0
// The container of a .pt2 file: a ZIP of stored members, mapped into memory and never unpacked. Its directory is checked as a whole before anything
// of it is used: what is in doubt (compressed, encrypted, overlapping, twice, links, names that leave the archive) is refused with one UserError.
// No member is ever executed or written to disk; pickles are bytes that nobody reads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/capture/pt2/program.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph::pt2 {

class Pt2Archive {
 public:
  /// UserError for a file that is not there, or is no .pt2 archive of version 0 in little-endian order. The file must not change
  /// while the archive or a Literal of it lives.
  explicit Pt2Archive(const std::string& path);
  /// The same on bytes in memory; `name` stands for the path in messages.
  Pt2Archive(std::vector<std::byte> bytes, std::string name);

  const std::string& path() const;
  int64_t file_bytes() const;
  /// Names without the first folder, sorted.
  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  /// The bytes, after their CRC-32 was found right: UserError if it was not, or if there is no such member. They live as long as storage().
  std::span<const std::byte> member(std::string_view name) const;
  /// Checks many members at once, by several threads when that is worth it; member() is then immediate. Unknown names are errors.
  void verify(std::span<const std::string> names) const;
  /// Keeps the bytes alive.
  std::shared_ptr<const void> storage() const;
  /// Counts bytes that are about to be copied out of members: views of few bytes may claim to be huge tensors. UserError when all copies together
  /// pass four times the file plus 64 MiB; `what` says whose they are.
  void charge_copy(int64_t bytes, const std::string& what) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The payload's elements: a view of the archive's bytes when they are dense, row-major and aligned, else a copy. `name` is for messages.
/// UserError for a strided view that leaves its member, a type that the engine has not, a bool that is neither 0 nor 1.
Literal payload_literal(const Pt2Archive& archive, const Payload& payload, const std::string& name = "");
/// Whether both are the same view of the same bytes, as tied weights are.
bool same_payload(const Payload& a, const Payload& b);

}  // namespace stepgraph::pt2
