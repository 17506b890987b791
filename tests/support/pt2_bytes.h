// SPDX-License-Identifier: Apache-2.0
// .pt2 archives made in memory, so that tests can make damaged ones.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/compile/capture/pt2/archive.h"
#include "tests/support/zip_bytes.h"

namespace stepgraph::testing {

/// Stored members behind those that each archive has.
inline std::vector<ZipMember> pt2_members(const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<ZipMember> members = {{"model/archive_format", "pt2"}, {"model/archive_version", "0"}, {"model/byteorder", "little"}};
  for (const auto& [name, data] : more) members.push_back({"model/" + name, data});
  return members;
}
inline pt2::Pt2Archive archive_of(const std::vector<std::pair<std::string, std::string>>& more) { return {to_bytes(zip_text(pt2_members(more))), "test.pt2"}; }

inline pt2::Payload payload(const std::string& file, int dtype_number, Shape sizes, Shape strides, int64_t offset = 0) {
  pt2::Payload result;
  result.member = "data/weights/" + file;
  result.meta.dtype_number = dtype_number;
  if (dtype_number == 7) result.meta.dtype = DType::F32;
  if (dtype_number == 12) result.meta.dtype = DType::Bool;
  result.meta.sizes = std::move(sizes);
  result.meta.strides = std::move(strides);
  result.meta.storage_offset = offset;
  return result;
}

}  // namespace stepgraph::testing
