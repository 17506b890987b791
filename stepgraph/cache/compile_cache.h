// SPDX-License-Identifier: Apache-2.0
// A folder of what compilations gave, by key. It is only ever an advantage: what cannot be read is not there, what cannot be written is not kept, and either
// is a warning. Any number of processes and threads may use, trim and clear a folder at once: an entry is written beside its place and put there whole.
//
//     FOLDER/<kind>/<hash of the key>.entry    a file of sections (base/section_file.h): key, about, content
//
// The time of a file is that of its last use: beyond the limit the least recently used go first.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "stepgraph/cache/cache_key.h"

namespace stepgraph {

struct CacheOptions {
  std::string folder;
  int64_t limit_bytes = int64_t{2} << 30;
  std::function<void(const std::string& message)> warn = {};           ///< by any thread, one at a time; empty: warnings are dropped
  bool read_only = false;                                              ///< nothing is stored, and what is found does not count as used
  std::function<void(const CacheKey& key, bool is_found)> asked = {};  ///< told of each find; by any thread
};

struct CacheEntry {
  CacheKey key;
  std::string about;  ///< for people
  std::string path;
  int64_t bytes = 0;
  int64_t unused_seconds = 0;  ///< since its last use
  std::string problem;         ///< empty: none; else key and about may be empty
};

class CompileCache {
 public:
  explicit CompileCache(CacheOptions options) : options_(std::move(options)) {}

  /// What was stored under the key. Nothing where nothing was, and where it is not what was stored: then with a warning that names the file.
  std::optional<std::string> find(const CacheKey& key);
  void store(const CacheKey& key, std::string_view about, std::string_view content);
  /// To be told when a content that was found is of no use: as a damaged one.
  void reject(const CacheKey& key, const std::string& why);
  /// Removes the least recently used entries beyond the limit. To be called after storing.
  void trim();

  /// The entry of the key's kind that differs in the fewest components, the last used of several.
  std::optional<CacheEntry> nearest(const CacheKey& key) const;
  /// All, by kind and then the last used first. `whole`: each entry's content is checked too.
  std::vector<CacheEntry> entries(bool whole = false) const;
  /// The content of one of `entries`; UserError if it is damaged.
  std::string content(const CacheEntry& entry) const;
  struct Cleared {
    int64_t entries = 0, bytes = 0;
  };
  /// Removes entries, and files that writers left behind; nothing else that is in the folder.
  Cleared clear();

  const std::string& folder() const { return options_.folder; }
  int64_t limit_bytes() const { return options_.limit_bytes; }

 private:
  std::string path(const CacheKey& key) const;
  std::optional<std::string> read(const CacheKey& key);
  void warn(const std::string& about_file, const std::string& message);
  bool is_trusted();
  void write(const std::string& kind, const std::string& to, std::string_view bytes);

  CacheOptions options_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> warned_;  // of which files
  std::optional<bool> trusted_;
  bool writable_ = true;
};

}  // namespace stepgraph
