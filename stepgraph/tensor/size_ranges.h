// SPDX-License-Identifier: Apache-2.0
// What is said of a run's size symbols beside their declarations: how far they will go, and for which points memory is planned. The program stays the same.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/tensor/dim.h"

namespace stepgraph {

struct SizeRange {
  std::string symbol;
  int64_t minimum = 0, maximum = INT64_MAX;  ///< inclusive
  std::vector<int64_t> buckets = {};         ///< ascending; empty: those of the symbol's declaration
  bool operator==(const SizeRange&) const = default;
};
using SizeRanges = std::vector<SizeRange>;

/// "batch=1..64,tokens=128", and "batch=8,16,64,tokens=64,128" of the points. UserError for another form.
SizeRanges parse_size_ranges(std::string_view ranges, std::string_view buckets = {});
/// UserError for a symbol that the program has not, a range outside of the declared one, or buckets that are not in the range.
void check(const SizeRanges& ranges, const SymbolTable& symbols);
/// UserError for a size outside of its range.
void check_sizes(const SizeRanges& ranges, const SymbolValues& sizes);

/// Bucket points of a symbol: those that are said, or declared.
std::vector<int64_t> bucket_points(const SizeRanges& ranges, const Symbol& symbol);
/// The largest size of the symbol to make room for when `size` is the largest met so far: the first bucket point that holds it, the end of its range, or the size itself
/// where there is neither.
int64_t room_for(const SizeRanges& ranges, const Symbol& symbol, int64_t size);

}  // namespace stepgraph
