// SPDX-License-Identifier: Apache-2.0
// The central directory of a ZIP file in memory, checked: where each stored member's bytes are. The ZIP library stays behind this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepgraph::pt2 {

struct ZipMember {
  std::string name;
  uint64_t header = 0;           ///< where its local header begins
  uint64_t begin = 0, size = 0;  ///< of the data, inside the file
  uint32_t crc = 0;
};

/// All members but folders, in the order of the file's bytes. UserError "WHERE: ..." unless the file is a ZIP whose members are all stored, not
/// encrypted, no links, named once each by a relative path without ".", ".." and backslashes, inside the file and apart from each other.
std::vector<ZipMember> read_zip_directory(std::span<const std::byte> file, const std::string& where);

/// Text from a file for a message: cut, and without control characters.
std::string shown(std::string_view text);

}  // namespace stepgraph::pt2
