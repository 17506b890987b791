// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/json_tree.h"
#include <fmt/core.h>
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"

namespace stepgraph::pt2 {
namespace {

using nlohmann::json;

// A tree takes some 60 bytes a value beside its strings; a program of 10 000 nodes has about a million.
constexpr size_t bytes_max = size_t{256} << 20;
constexpr size_t values_max = 20'000'000;
constexpr size_t depth_max = 200;

class TreeBuilder final : public nlohmann::json_sax<json> {
 public:
  TreeBuilder(const std::string& where, std::span<const std::string_view> ignored) : where_(where), ignored_(ignored) {}
  JsonValue result;

  bool null() override { return leaf({}); }
  bool boolean(bool value) override { return leaf({value}); }
  bool number_integer(number_integer_t value) override { return leaf({static_cast<int64_t>(value)}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return leaf({static_cast<double>(value)});
    return leaf({static_cast<int64_t>(value)});
  }
  bool number_float(number_float_t value, const string_t&) override { return leaf({value}); }
  bool string(string_t& value) override { return leaf({std::move(value)}); }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open({JsonValue::Object{}}); }
  bool start_array(std::size_t) override { return open({JsonValue::List{}}); }
  bool end_array() override { return close(); }
  bool end_object() override {
    if (skipped_ == 0) check_keys(std::get<JsonValue::Object>(stack_.back()->value));
    return close();
  }
  bool key(string_t& name) override {
    if (skipped_ > 0) return true;
    skip_next_ = in_metadata() && std::find(ignored_.begin(), ignored_.end(), name) != ignored_.end();
    std::get<JsonValue::Object>(stack_.back()->value).emplace_back(std::move(name), JsonValue{});
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw UserError(fmt::format("{}: not valid JSON at byte {}", where_, position));
  }

 private:
  bool in_metadata() const {
    const auto* around = stack_.size() < 2 ? nullptr : std::get_if<JsonValue::Object>(&stack_[stack_.size() - 2]->value);
    return around != nullptr && around->back().first == "metadata";
  }
  /// Where the next value goes; a null pointer while it is skipped.
  JsonValue* place() {
    if (++values_ > values_max) throw UserError(fmt::format("{}: JSON of more than {} values", where_, values_max));
    if (skipped_ > 0 || std::exchange(skip_next_, false)) return nullptr;
    if (stack_.empty()) return &result;
    if (auto* list = std::get_if<JsonValue::List>(&stack_.back()->value)) return &list->emplace_back();
    return &std::get<JsonValue::Object>(stack_.back()->value).back().second;
  }
  bool leaf(JsonValue value) {
    if (JsonValue* to = place()) *to = std::move(value);
    return true;
  }
  bool open(JsonValue value) {
    if (stack_.size() + skipped_ >= depth_max) throw UserError(fmt::format("{}: JSON nested more than {} deep", where_, depth_max));
    if (JsonValue* to = place()) {
      *to = std::move(value);
      stack_.push_back(to);
    } else {
      ++skipped_;
    }
    return true;
  }
  bool close() {
    if (skipped_ > 0)
      --skipped_;
    else
      stack_.pop_back();
    return true;
  }
  void check_keys(const JsonValue::Object& object) {
    keys_.clear();
    for (const auto& [key, value] : object) keys_.push_back(key);
    std::sort(keys_.begin(), keys_.end());
    const auto twice = std::adjacent_find(keys_.begin(), keys_.end());
    if (twice != keys_.end()) throw UserError(fmt::format("{}: key '{}' is given twice", where_, shown(*twice)));
  }

  const std::string& where_;
  std::span<const std::string_view> ignored_;
  std::vector<JsonValue*> stack_;  // open objects and lists; a list does not grow while an item of it is open
  std::vector<std::string_view> keys_;
  size_t skipped_ = 0, values_ = 0;
  bool skip_next_ = false;
};

}  // namespace

JsonValue parse_json(std::span<const std::byte> text, const std::string& where, std::span<const std::string_view> ignored) {
  if (text.size() > bytes_max) throw UserError(fmt::format("{}: JSON of {} bytes, wanted at most {}", where, text.size(), bytes_max));
  TreeBuilder builder(where, ignored);
  const char* begin = reinterpret_cast<const char*>(text.data());
  json::sax_parse(begin, begin + text.size(), &builder);
  return std::move(builder.result);
}

std::string JsonAt::path() const {
  std::vector<const JsonAt*> chain;
  for (const JsonAt* at = this; at->above_ != nullptr; at = at->above_) chain.push_back(at);
  std::string result;
  for (size_t i = chain.size(); i-- > 0;) {
    if (std::holds_alternative<JsonValue::List>(chain[i]->above_->value_->value))
      result += fmt::format("[{}]", chain[i]->index_);
    else
      result += (result.empty() ? "" : ".") + shown(chain[i]->key_);
  }
  // The innermost part says most.
  constexpr size_t limit = 300;
  return result.size() > limit ? "..." + result.substr(result.size() - limit) : result;
}

void JsonAt::fail(const std::string& what) const {
  const std::string place = path();
  throw UserError(*where_ + ": " + (place.empty() ? "" : place + ": ") + what);
}

void JsonAt::wanted(const char* kind) const {
  struct Describe {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(const std::string& value) const { return fmt::format("'{}'", shown(value)); }
    std::string operator()(const JsonValue::List&) const { return "a list"; }
    std::string operator()(const JsonValue::Object&) const { return "an object"; }
  };
  fail(fmt::format("found {}, wanted {}", std::visit(Describe{}, value_->value), kind));
}

bool JsonAt::boolean() const {
  if (const auto* value = std::get_if<bool>(&value_->value)) return *value;
  wanted("true or false");
}
int64_t JsonAt::integer() const {
  if (const auto* value = std::get_if<int64_t>(&value_->value)) return *value;
  wanted("an integer of 64 bits");
}
double JsonAt::number() const {
  if (const auto* value = std::get_if<double>(&value_->value)) return *value;
  if (const auto* value = std::get_if<int64_t>(&value_->value)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::string>(&value_->value)) {
    if (*value == "Infinity") return std::numeric_limits<double>::infinity();
    if (*value == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (*value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  wanted("a number");
}
const std::string& JsonAt::string() const {
  if (const auto* value = std::get_if<std::string>(&value_->value)) return *value;
  wanted("a string");
}
const JsonValue::Object& JsonAt::object() const {
  if (const auto* value = std::get_if<JsonValue::Object>(&value_->value)) return *value;
  wanted("an object");
}
const JsonValue::List& JsonAt::list() const {
  if (const auto* value = std::get_if<JsonValue::List>(&value_->value)) return *value;
  wanted("a list");
}

JsonAt JsonAt::at(std::string_view key) const& {
  for (const auto& [name, value] : object())
    if (name == key) return {*this, value, name, 0};
  fail(fmt::format("key '{}' is missing", key));
}
std::optional<JsonAt> JsonAt::find(std::string_view key) const& {
  for (const auto& [name, value] : object())
    if (name == key && !std::holds_alternative<std::monostate>(value.value)) return JsonAt{*this, value, name, 0};
  return {};
}
std::pair<std::string_view, JsonAt> JsonAt::variant() const& {
  const auto& entries = object();
  if (entries.size() != 1) fail(fmt::format("found {} keys, wanted exactly one, which says the kind", entries.size()));
  return {entries[0].first, JsonAt{*this, entries[0].second, entries[0].first, 0}};
}
size_t JsonAt::size() const {
  if (const auto* value = std::get_if<JsonValue::Object>(&value_->value)) return value->size();
  return list().size();
}
JsonAt JsonAt::operator[](size_t index) const& { return {*this, list()[index], {}, index}; }
std::pair<std::string_view, JsonAt> JsonAt::entry(size_t index) const& {
  const auto& [name, value] = object()[index];
  return {name, JsonAt{*this, value, name, 0}};
}

}  // namespace stepgraph::pt2
