// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/size_ranges.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "stepgraph/base/error.h"
#include "stepgraph/base/split_at.h"

namespace stepgraph {
namespace {

int64_t size_of(std::string_view text, std::string_view part) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw UserError("found '" + std::string(text) + "' in '" + std::string(part) + "', wanted a size");
  return value;
}

SizeRange& entry_of(SizeRanges& ranges, std::string_view symbol) {
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const SizeRange& range) { return range.symbol == symbol; });
  if (found != ranges.end()) return *found;
  ranges.push_back({.symbol = std::string(symbol)});
  return ranges.back();
}

const SizeRange* find(const SizeRanges& ranges, std::string_view symbol) {
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const SizeRange& range) { return range.symbol == symbol; });
  return found == ranges.end() ? nullptr : &*found;
}

std::string text(const SizeRange& range) {
  return range.symbol + "=" + std::to_string(range.minimum) + ".." + (range.maximum == INT64_MAX ? "inf" : std::to_string(range.maximum));
}

}  // namespace

SizeRanges parse_size_ranges(std::string_view ranges, std::string_view buckets) {
  SizeRanges result;
  for (const std::string_view part : split_at(ranges, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) throw UserError("found '" + std::string(part) + "', wanted SYMBOL=LOW..HIGH, as batch=1..64");
    if (find(result, part.substr(0, equals)) != nullptr) throw UserError("symbol " + std::string(part.substr(0, equals)) + " has two ranges");
    SizeRange& range = entry_of(result, part.substr(0, equals));
    const std::string_view sizes = part.substr(equals + 1);
    const size_t dots = sizes.find("..");
    range.minimum = size_of(sizes.substr(0, dots), part);
    range.maximum = dots == std::string_view::npos ? range.minimum : size_of(sizes.substr(dots + 2), part);
    if (range.minimum > range.maximum) throw UserError("found '" + std::string(part) + "', wanted the smaller size first");
  }
  SizeRange* range = nullptr;
  for (const std::string_view part : split_at(buckets, ',')) {
    const size_t equals = part.find('=');
    if (equals == 0 || (equals == std::string_view::npos && range == nullptr))
      throw UserError("found '" + std::string(part) + "', wanted SYMBOL=SIZE,SIZE,..., as batch=8,16,64");
    if (equals != std::string_view::npos) {
      range = &entry_of(result, part.substr(0, equals));
      if (!range->buckets.empty()) throw UserError("symbol " + range->symbol + " has two lists of buckets");
    }
    const int64_t point = size_of(equals == std::string_view::npos ? part : part.substr(equals + 1), part);
    if (!range->buckets.empty() && point <= range->buckets.back()) throw UserError("buckets of " + range->symbol + " are not ascending at " + std::to_string(point));
    range->buckets.push_back(point);
  }
  return result;
}

void check(const SizeRanges& ranges, const SymbolTable& symbols) {
  for (const SizeRange& range : ranges) {
    const Symbol* symbol = symbols.find(range.symbol);
    if (symbol == nullptr || symbol->kind != SymbolKind::Size) {
      std::string known;
      for (const Symbol& other : symbols.all())
        if (other.kind == SymbolKind::Size) known += (known.empty() ? "" : ", ") + other.name;
      throw UserError("sizes: the program has no size '" + range.symbol + "', it has " + (known.empty() ? "none" : known));
    }
    const bool is_whole = range.minimum == 0 && range.maximum == INT64_MAX;  // buckets alone
    if (!is_whole && (range.minimum < symbol->minimum || range.maximum > symbol->maximum))
      throw UserError("sizes: found " + text(range) + ", the program is made for " + symbols.describe(Dim::symbol(range.symbol)));
    for (const int64_t point : range.buckets)
      if (point < std::max(range.minimum, symbol->minimum) || point > std::min(range.maximum, symbol->maximum) || point % symbol->multiple_of != 0)
        throw UserError("sizes: bucket " + std::to_string(point) + " of " + range.symbol + " is not in its range " + (is_whole ? symbols.describe(Dim::symbol(range.symbol)) : text(range)));
  }
}

void check_sizes(const SizeRanges& ranges, const SymbolValues& sizes) {
  for (const SizeRange& range : ranges) {
    const auto found = sizes.find(range.symbol);
    if (found == sizes.end()) continue;
    if (found->second < range.minimum || found->second > range.maximum)
      throw UserError("found a batch where " + range.symbol + " is " + std::to_string(found->second) + ", this run was announced with " + text(range));
    if (!range.buckets.empty() && found->second > range.buckets.back())
      throw UserError("found a batch where " + range.symbol + " is " + std::to_string(found->second) + ", its largest bucket is " + std::to_string(range.buckets.back()));
  }
}

std::vector<int64_t> bucket_points(const SizeRanges& ranges, const Symbol& symbol) {
  const SizeRange* range = find(ranges, symbol.name);
  return range != nullptr && !range->buckets.empty() ? range->buckets : symbol.buckets;
}

int64_t room_for(const SizeRanges& ranges, const Symbol& symbol, int64_t size) {
  const std::vector<int64_t> points = bucket_points(ranges, symbol);
  if (const auto point = std::lower_bound(points.begin(), points.end(), size); point != points.end()) return *point;
  const SizeRange* range = find(ranges, symbol.name);
  const int64_t most = std::min(symbol.maximum, range == nullptr ? INT64_MAX : range->maximum);
  return most == INT64_MAX ? std::max(size, symbol.minimum) : most;
}

}  // namespace stepgraph
