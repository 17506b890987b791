// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/cache/cache_key.h"

#include <charconv>
#include <set>
#include <span>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

void put_text(std::string& out, std::string_view text) { (out += std::to_string(text.size()) + ":") += text; }

std::string take_text(std::string_view& from) {
  size_t size = 0;
  const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), size);
  const auto digits = static_cast<size_t>(end - from.data());
  if (error != std::errc() || digits == from.size() || *end != ':' || size > from.size() - digits - 1) throw UserError("found no components of a key");
  std::string text(from.substr(digits + 1, size));
  from.remove_prefix(digits + 1 + size);
  return text;
}

std::string shown(const std::optional<std::string>& value) { return !value ? "not there" : value->empty() ? "empty" : *value; }

}  // namespace

Hash128 CacheKey::hash() const {
  const std::string bytes = key_bytes(*this);
  return hash_bytes(std::as_bytes(std::span(bytes)));
}

std::string key_bytes(const CacheKey& key) {
  std::string out;
  put_text(out, key.kind);
  for (const auto& [name, value] : key.components) {
    put_text(out, name);
    put_text(out, value);
  }
  return out;
}

CacheKey key_of_bytes(std::string_view bytes) {
  CacheKey key;
  key.kind = take_text(bytes);
  while (!bytes.empty()) {
    std::string name = take_text(bytes);
    key.components[std::move(name)] = take_text(bytes);
  }
  return key;
}

std::vector<KeyDifference> differences(const CacheKey& before, const CacheKey& now) {
  std::set<std::string> names;
  for (const CacheKey* key : {&before, &now})
    for (const auto& [name, value] : key->components) names.insert(name);
  const auto value_of = [](const CacheKey& key, const std::string& name) {
    const auto found = key.components.find(name);
    return found == key.components.end() ? std::nullopt : std::optional(found->second);
  };
  std::vector<KeyDifference> found;
  for (const std::string& name : names) {
    KeyDifference difference{name, value_of(before, name), value_of(now, name)};
    if (difference.before != difference.now) found.push_back(std::move(difference));
  }
  return found;
}

std::string text(const std::vector<KeyDifference>& differences) {
  std::string all;
  for (const KeyDifference& difference : differences)
    all += (all.empty() ? "" : "; ") + difference.component + ": was " + shown(difference.before) + ", now " + shown(difference.now);
  return all;
}

}  // namespace stepgraph
