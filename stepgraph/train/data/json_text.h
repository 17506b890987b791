// SPDX-License-Identifier: Apache-2.0
// The JSON texts of this folder, parsed strictly: each key once, bounded nesting, nothing unknown. The JSON library stays behind this header.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// UserError "WHERE: ..." unless `text` is one JSON value without duplicate keys, nested at most 16 deep.
void check_json(std::string_view text, const std::string& where);

struct TensorEntry {
  std::string name;
  DType dtype = DType::F32;
  Sizes sizes;
  int64_t begin = 0, end = 0;  // in the data behind the header
};
struct TensorHeader {
  std::vector<TensorEntry> entries;  // by name
  std::map<std::string, std::string> metadata;
};
/// Types and fields only: whether the ranges make sense is the reader's question.
TensorHeader parse_tensor_header(std::string_view text, const std::string& where);
std::string print_tensor_header(const TensorHeader& header);

/// A flat object of integers with exactly the given keys, in that order on return.
std::vector<int64_t> parse_integers(std::string_view text, const std::vector<std::string>& keys, const std::string& where);
std::string print_integers(const std::vector<std::pair<std::string, int64_t>>& fields);

}  // namespace stepgraph
