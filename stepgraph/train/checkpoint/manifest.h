// SPDX-License-Identifier: Apache-2.0
// manifest.json: what a checkpoint is, and the sizes and checksums by which its files are believed. JSON stays behind this header.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

inline constexpr int64_t checkpoint_format_version = 1;

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  std::string checksum;  // Hash128 text of the whole file
};
struct ManifestTensor {
  std::string name;
  DType dtype = DType::F32;
  Sizes sizes;
  std::string file;
};
struct Manifest {
  int64_t step = 0;
  std::string module_hash, cursor;
  uint64_t seed = 0;
  std::map<std::string, std::string> extra;
  std::vector<ManifestFile> files;      // by name
  std::vector<ManifestTensor> tensors;  // by name
};

/// Canonical text with a checksum over itself.
std::string print_manifest(const Manifest& manifest);
/// UserError "WHERE: ...". The format version is looked at first; any change of a canonical text, however small, is refused.
Manifest parse_manifest(std::string_view text, const std::string& where);

}  // namespace stepgraph
