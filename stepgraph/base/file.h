// SPDX-License-Identifier: Apache-2.0
// Whole files in one call. A file that the user named and that cannot be opened is the user's to mend: UserError "cannot open data.csv: No such
// file or directory". A failure after that is a SystemError.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepgraph {

/// UserError if it is larger than `limit` bytes, before anything is allocated.
std::string read_file(const std::string& path, int64_t limit = INT64_MAX);
std::vector<std::byte> read_file_bytes(const std::string& path, int64_t limit = INT64_MAX);
/// Creates or replaces. Not safe against a crash: that is what Disk is for.
void write_file(const std::string& path, std::string_view content);

}  // namespace stepgraph
