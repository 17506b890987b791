// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/repeated_runs.h"

#include <algorithm>
#include <unordered_map>

namespace stepgraph {
namespace {

constexpr uint64_t modulus = (uint64_t{1} << 61) - 1;
constexpr uint64_t base = 0x1F3D5B79A2C4E681ULL % modulus;
constexpr size_t window = 4;

uint64_t multiply(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  const uint64_t sum = static_cast<uint64_t>(product & modulus) + static_cast<uint64_t>(product >> 61);
  return sum >= modulus ? sum - modulus : sum;
}

class Prefixes {
 public:
  explicit Prefixes(std::span<const uint64_t> tokens) : hashes_(tokens.size() + 1), powers_(tokens.size() + 1, 1) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const uint64_t sum = multiply(hashes_[i], base) + tokens[i] % modulus;
      hashes_[i + 1] = sum >= modulus ? sum - modulus : sum;
      powers_[i + 1] = multiply(powers_[i], base);
    }
  }
  size_t size() const { return hashes_.size() - 1; }
  uint64_t of(size_t begin, size_t length) const {
    const uint64_t before = multiply(hashes_[begin], powers_[length]), all = hashes_[begin + length];
    return all >= before ? all - before : all + modulus - before;
  }
  /// How many tokens from a and from b > a on are equal.
  size_t forward(size_t a, size_t b) const {
    return longest(size() - b, [&](size_t length) { return of(a, length) == of(b, length); });
  }
  /// How many tokens before a and before b > a are equal.
  size_t backward(size_t a, size_t b) const {
    return longest(a, [&](size_t length) { return of(a - length, length) == of(b - length, length); });
  }

 private:
  template <class Equal>
  static size_t longest(size_t limit, Equal equal) {
    size_t low = 0;
    while (low < limit) {
      const size_t middle = low + (limit - low + 1) / 2;
      if (equal(middle)) low = middle;
      else limit = middle - 1;
    }
    return low;
  }
  std::vector<uint64_t> hashes_, powers_;
};

}  // namespace

std::vector<RepeatedRun> repeated_runs(std::span<const uint64_t> tokens) {
  std::vector<RepeatedRun> runs;
  const Prefixes prefixes(tokens);
  std::unordered_map<uint64_t, size_t> last;       // where a window was seen last; looked up only
  std::unordered_map<size_t, size_t> examined_to;  // by period; looked up only
  for (size_t i = 0; i + window <= tokens.size(); ++i) {
    const auto [seen, is_new] = last.emplace(prefixes.of(i, window), i);
    if (is_new) continue;
    const size_t first = seen->second, period = i - first;
    seen->second = i;
    size_t& examined = examined_to[period];
    if (first < examined) continue;
    const size_t before = prefixes.backward(first, i), after = prefixes.forward(first, i);
    examined = first + after;
    if (before + after >= period) runs.push_back({first - before, before + after + period, period});
  }
  return runs;
}

}  // namespace stepgraph
