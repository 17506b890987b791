// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace stepgraph {
namespace {

/// Insertions, deletions, replacements and swaps of neighbours (Damerau, 1964), three rows at a time. Names are cut so that a huge one costs little.
size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, 200);
  b = b.substr(0, 200);
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_names(std::string_view wanted, std::span<const std::string> names, size_t limit) {
  std::vector<std::pair<size_t, size_t>> ranked;  // distance, place
  for (size_t i = 0; i < names.size(); ++i) ranked.emplace_back(edit_distance(wanted, names[i]), i);
  std::sort(ranked.begin(), ranked.end());
  std::string result;
  for (size_t i = 0; i < std::min(limit, ranked.size()); ++i) result += (i > 0 ? ", " : "") + names[ranked[i].second];
  return result;
}

}  // namespace stepgraph
