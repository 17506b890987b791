// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace stepgraph {
namespace {

/// Levenshtein (1966), one row at a time. Names are cut so that a huge one costs little.
size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, 200);
  b = b.substr(0, 200);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_names(std::string_view wanted, std::span<const std::string> names, size_t limit) {
  std::vector<std::pair<size_t, const std::string*>> ranked;
  for (const std::string& name : names) ranked.emplace_back(edit_distance(wanted, name), &name);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string result;
  for (size_t i = 0; i < std::min(limit, ranked.size()); ++i) result += (i > 0 ? ", " : "") + *ranked[i].second;
  return result;
}

}  // namespace stepgraph
