// SPDX-License-Identifier: Apache-2.0
// Repeats, and the two numbers worth keeping of them: the least, which noise cannot lower, and the median.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

namespace stepgraph::bench {

inline double milliseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Of the processor, all threads together: what other processes do does not enter.
inline double cpu_milliseconds() { return static_cast<double>(std::clock()) * 1000 / CLOCKS_PER_SEC; }
inline double cpu_milliseconds(const std::function<void()>& run) {
  const double start = cpu_milliseconds();
  run();
  return cpu_milliseconds() - start;
}

struct Spread {
  double minimum = 0, median = 0;
};
inline Spread spread(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples.front(), samples[samples.size() / 2]};
}
inline void print_row(const std::string& what, const Spread& found) {
  std::printf("%-44s %10.2f %10.2f\n", what.c_str(), found.minimum, found.median);
}
inline void print_head(const std::string& what) { std::printf("%-44s %10s %10s\n", what.c_str(), "min ms", "median ms"); }

}  // namespace stepgraph::bench
