// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/cache/cache_place.h"

#include <cstdlib>

namespace stepgraph {
namespace {

/// Empty where it is not set.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string default_cache_folder() {
  if (std::string place = environment("STEPGRAPH_CACHE"); !place.empty()) return place;
  // A relative path is to be ignored, says the specification of these folders.
  if (const std::string caches = environment("XDG_CACHE_HOME"); caches.starts_with("/")) return caches + "/stepgraph";
  if (const std::string home = environment("HOME"); home.starts_with("/")) return home + "/.cache/stepgraph";
  return "off";
}

std::string default_cache_limit() {
  const std::string limit = environment("STEPGRAPH_CACHE_LIMIT");
  return limit.empty() ? "2GiB" : limit;
}

}  // namespace stepgraph
