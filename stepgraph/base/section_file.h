// SPDX-License-Identifier: Apache-2.0
// Files of a few sections, each with its hash: what is read back is what was written, or an error that says what is wrong with it.
//
//     magic        8 bytes
//     version      4 bytes; all numbers are little-endian
//     n sections   4 bytes, then for each its size (8 bytes) and hash (16 bytes)
//     hash         16 bytes, of all that is before it
//     the sections, end to end; the file ends with the last one
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepgraph {

/// A kind of file.
struct SectionFile {
  std::string_view magic;  ///< of 8 bytes
  uint32_t version = 1;
  std::string_view what;                       ///< for messages: "plan file"
  std::span<const std::string_view> sections;  ///< their names
};

std::string section_file_bytes(const SectionFile& kind, std::span<const std::string> sections);
/// Parts of `bytes`. UserError "NAME: ..." for what is damaged, cut off, followed by more, or of another version.
std::vector<std::string_view> read_sections(const SectionFile& kind, std::string_view bytes, const std::string& name);
/// The first sections alone, of which `bytes` need not hold more; nothing of the others is checked.
std::vector<std::string_view> read_first_sections(const SectionFile& kind, std::string_view bytes, const std::string& name, size_t count);

}  // namespace stepgraph
