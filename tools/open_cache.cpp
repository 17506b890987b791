// SPDX-License-Identifier: Apache-2.0
#include "tools/open_cache.h"

#include <charconv>
#include <utility>

#include "stepgraph/base/error.h"
#include "stepgraph/cache/cache_place.h"
#include "tools/verbs.h"

namespace stepgraph {

int64_t bytes_of_text(const std::string& text) {
  constexpr std::pair<std::string_view, double> units[] = {{"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
                                                           {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit = std::string_view(text).substr(static_cast<size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, factor] : units)
    if (error == std::errc() && name == unit && value >= 0 && value * factor < 0x1p62) return static_cast<int64_t>(value * factor);
  throw UserError("found '" + text + "', wanted bytes, as 2GiB or 500MB");
}

CacheOptions cache_options(const std::string& folder, const std::string& limit) {
  CacheOptions options;
  options.folder = folder;
  try {
    options.limit_bytes = bytes_of_text(limit.empty() ? default_cache_limit() : limit);
  } catch (const UserError& problem) {
    throw UserError("STEPGRAPH_CACHE_LIMIT: " + std::string(problem.what()));
  }
  options.warn = [](const std::string& message) { tell("warning", message); };
  return options;
}

std::shared_ptr<CompileCache> open_cache(const std::string& place, const std::string& limit) {
  const std::string folder = place.empty() ? default_cache_folder() : place;
  if (folder == "off") return nullptr;
  return std::make_shared<CompileCache>(cache_options(folder, limit));
}

}  // namespace stepgraph
