// SPDX-License-Identifier: Apache-2.0
// What an entry of the compile cache was made of: named components, so that a miss can say which of them differs.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/base/hash.h"

namespace stepgraph {

struct CacheKey {
  std::string kind;                               ///< "plan", "form", ...: letters
  std::map<std::string, std::string> components;  ///< a component joins by being put in; long ones as their hash
  Hash128 hash() const;
  bool operator==(const CacheKey&) const = default;
};
std::string key_bytes(const CacheKey& key);
/// UserError if the bytes are no key.
CacheKey key_of_bytes(std::string_view bytes);

struct KeyDifference {
  std::string component;
  std::optional<std::string> before, now;  ///< nothing: there is no such component
  bool operator==(const KeyDifference&) const = default;
};
/// In order of names.
std::vector<KeyDifference> differences(const CacheKey& before, const CacheKey& now);
/// "backend: was full, now eager; target.threads: was 2, now 4"
std::string text(const std::vector<KeyDifference>& differences);

}  // namespace stepgraph
