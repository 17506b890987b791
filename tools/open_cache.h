// SPDX-License-Identifier: Apache-2.0
// The compile cache as the command takes it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include "stepgraph/cache/compile_cache.h"

namespace stepgraph {

/// For open_cache, and for who changes it.
CacheOptions cache_options(const std::string& folder, const std::string& limit);
/// `place`: a folder, or "off", which gives nothing; empty: the user's. `limit` as bytes_of_text takes it; empty: the user's, or 2 GiB. Warnings go to standard
/// error. The folder need not be there.
std::shared_ptr<CompileCache> open_cache(const std::string& place, const std::string& limit);

/// "2GiB", "500MB", "1048576". UserError for another text.
int64_t bytes_of_text(const std::string& text);

}  // namespace stepgraph
