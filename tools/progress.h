// SPDX-License-Identifier: Apache-2.0
// A line that shows how far a long job is: redrawn in place on a terminal, a plain line at times elsewhere. Writes to standard error.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stepgraph {

class Progress {
 public:
  Progress(std::string label, int64_t total, int64_t start);
  /// Ends the line, so that what is printed next (an error, too) has one of its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `details`: "loss 3.183", "31.9 k tokens/s"; what a narrow terminal has no room for is left out from the end.
  void update(int64_t done, const std::vector<std::string>& details);
  /// A line of its own above the bar.
  void print(const std::string& line);
  void finish();

 private:
  std::string bar_line(int64_t done, std::vector<std::string> details) const;
  std::string label_, last_;
  int64_t total_, start_;
  double began_, drawn_ = 0;
  bool terminal_;
};

/// "1,234,567", "3.1 MB", "31.9 k"
std::string with_commas(int64_t value);
std::string bytes_text(double bytes);
std::string rate_text(double value);
double seconds_now();

}  // namespace stepgraph
