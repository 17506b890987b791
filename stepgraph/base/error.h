// SPDX-License-Identifier: Apache-2.0
// Errors: exceptions of four kinds, by whose job it is to act. A message is lower case, without a full stop; it says what was found,
// what was wanted, and where: "matmul: inner dims differ, 512 and 768 (gpt.cpp:41)".
#pragma once
#include <cstdint>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stepgraph {

/// A place in the user's source: C++ file or .sg text. `line` 0 = unknown.
struct SourcePlace {
  std::string file;
  int line = 0;
  bool known() const { return line > 0; }
  /// "gpt.cpp:41" (base name only, so that text is equal on every machine), or "" if unknown.
  std::string text() const;
  bool operator==(const SourcePlace&) const = default;
};
SourcePlace place_of(const std::source_location& location);

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// An index beyond the dim that it points into, for who knows where the indices came from.
struct BadIndex {
  BadIndex(std::string op_name, int64_t bad_index, int64_t dim_size) : op(std::move(op_name)), index(bad_index), size(dim_size) {}
  std::string op;
  int64_t index = 0, size = 0;
};
/// The model, graph, options or data are at fault; the user mends it. Exit code 2 in the command.
class UserError : public Error {
 public:
  explicit UserError(const std::string& message) : Error(message) {}
  /// Appends " (file:line)" when the place is known.
  UserError(const std::string& message, const SourcePlace& place);
  UserError(const std::string& message, BadIndex bad_index);
  /// The same fault in other words, with what else it carries.
  UserError retold(const std::string& message, const SourcePlace& place = {}) const;
  /// nullptr for faults of another kind.
  const BadIndex* bad_index() const { return bad_index_.get(); }

 private:
  std::shared_ptr<const BadIndex> bad_index_;  // shared, since an exception's copy must not throw
};
/// A file, the disk, memory or a driver failed.
class SystemError : public Error {
 public:
  using Error::Error;
};
/// A peer was lost or timed out. `suspects` are ranks.
class CommError : public Error {
 public:
  CommError(const std::string& message, std::string group, std::vector<int> suspects);
  const std::string& group() const { return group_; }
  const std::vector<int>& suspects() const { return suspects_; }

 private:
  std::string group_;
  std::vector<int> suspects_;
};
/// A fault of the engine itself: a failed SG_CHECK.
class InternalError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void check_failed(const char* expression, const std::string& detail, const std::source_location& location);

}  // namespace stepgraph

/// Always on. SG_CHECK(condition) or SG_CHECK(condition, "text").
#define SG_CHECK(condition, ...)                                                                              \
  do {                                                                                                        \
    if (!(condition)) ::stepgraph::check_failed(#condition, std::string{__VA_ARGS__}, std::source_location::current()); \
  } while (false)
