// SPDX-License-Identifier: Apache-2.0
// A JSON text as a tree that knows where it stands, so that each wrong field is named in full. The JSON library stays behind this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace stepgraph::pt2 {

struct JsonValue {
  using List = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;  ///< in the order of the text, each key once
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Object> value;
};

/// UserError "WHERE: ..." unless `text` is one JSON value of bounded size and depth without duplicate keys. Values with a key of `ignored`
/// are null in objects that are themselves the value of the key "metadata".
JsonValue parse_json(std::span<const std::byte> text, const std::string& where, std::span<const std::string_view> ignored = {});

/// A place in a tree. It refers to the place above, which must outlive it: take members of named places only.
class JsonAt {
 public:
  JsonAt(const JsonValue& root, const std::string& where) : value_(&root), where_(&where) {}

  /// UserError "WHERE: graph.nodes[12].name: WHAT".
  [[noreturn]] void fail(const std::string& what) const;
  std::string path() const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_->value); }
  bool is_string() const { return std::holds_alternative<std::string>(value_->value); }
  bool boolean() const;
  int64_t integer() const;
  /// Integers and the strings "Infinity", "-Infinity" and "NaN" are numbers too.
  double number() const;
  const std::string& string() const;

  /// Of an object: UserError if the key is missing; find() has nothing for a missing key or a null.
  JsonAt at(std::string_view key) const&;
  JsonAt at(std::string_view key) const&& = delete;
  std::optional<JsonAt> find(std::string_view key) const&;
  std::optional<JsonAt> find(std::string_view key) const&& = delete;
  /// The one key of a union, and what is under it.
  std::pair<std::string_view, JsonAt> variant() const&;
  std::pair<std::string_view, JsonAt> variant() const&& = delete;

  size_t size() const;                     ///< of a list or an object
  JsonAt operator[](size_t index) const&;  ///< of a list
  JsonAt operator[](size_t index) const&& = delete;
  std::pair<std::string_view, JsonAt> entry(size_t index) const&;  ///< of an object
  std::pair<std::string_view, JsonAt> entry(size_t index) const&& = delete;

 private:
  JsonAt(const JsonAt& above, const JsonValue& value, std::string_view key, size_t index)
      : value_(&value), where_(above.where_), above_(&above), key_(key), index_(index) {}
  const JsonValue::Object& object() const;
  const JsonValue::List& list() const;
  [[noreturn]] void wanted(const char* kind) const;

  const JsonValue* value_;
  const std::string* where_;
  const JsonAt* above_ = nullptr;
  std::string_view key_ = {};  // empty: an item of a list
  size_t index_ = 0;
};

}  // namespace stepgraph::pt2
