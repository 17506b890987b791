// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/pattern.h"

namespace stepgraph {

bool matches(std::string_view pattern, std::string_view name) {
  // Greedy with one point to come back to: linear memory, at most |pattern| * |name| steps.
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace stepgraph
