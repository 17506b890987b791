// SPDX-License-Identifier: Apache-2.0
#include "tools/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace stepgraph {
namespace {

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

std::string clock_text(double seconds) {
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60) : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value), text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string bytes_text(double bytes) {
  for (const char* unit : {"B", "kB", "MB", "GB"}) {
    if (bytes < 999.5) return fmt::format("{:.3g} {}", bytes, unit);
    bytes /= 1000;
  }
  return fmt::format("{:.3g} TB", bytes);
}

std::string rate_text(double value) {
  if (value >= 1e6) return fmt::format("{:.1f} M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f} k", value / 1e3);
  return fmt::format("{:.1f} ", value);
}

Progress::Progress(std::string label, int64_t total, int64_t start)
    : label_(std::move(label)), total_(total), start_(start), began_(seconds_now()), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { finish(); }

std::string Progress::bar_line(int64_t done, std::vector<std::string> details) const {
  const double elapsed = seconds_now() - began_;
  const bool has_total = total_ > 0 && total_ < INT64_MAX;
  const double share = has_total ? static_cast<double>(done) / static_cast<double>(total_) : 0;
  if (has_total && done > start_) {
    const double left = elapsed / static_cast<double>(done - start_) * static_cast<double>(total_ - done);
    details.insert(details.begin() + std::min<std::ptrdiff_t>(2, std::ssize(details)), "ETA " + clock_text(left));
  }
  std::string line = has_total ? fmt::format("{}  {}/{}", label_, done, total_) : fmt::format("{}  {}", label_, done);
  if (!terminal_) {
    for (const std::string& detail : details) line += "  " + detail;
    return line;
  }
  // " ━━━━━ 100 %" takes 7 columns and the bar; the last column of the terminal stays free.
  constexpr size_t bar_min = 5, bar_max = 30;
  const size_t columns = static_cast<size_t>(terminal_width()) - 1;
  if (line.size() + (has_total ? 7 + bar_min : 0) > columns) return line.substr(0, columns);  // no room for a bar
  size_t used = line.size() + (has_total ? 7 + bar_min : 0);
  std::string tail;
  for (const std::string& detail : details) {
    if (used + 2 + detail.size() > columns) break;
    tail += "  " + detail;
    used += 2 + detail.size();
  }
  if (!has_total) return line + tail;
  const size_t width = std::min(bar_max, bar_min + (columns > used ? columns - used : 0));
  const size_t filled = static_cast<size_t>(share * static_cast<double>(width));
  std::string bar;
  for (size_t i = 0; i < width; ++i) bar += i < filled ? "━" : (i == filled ? "╸" : "─");
  return fmt::format("{} {} {:3.0f} %{}", line, bar, share * 100, tail);
}

void Progress::update(int64_t done, const std::vector<std::string>& details) {
  const double now = seconds_now();
  const double pause = terminal_ ? 0.1 : 5;
  const bool end = done == total_;
  if (!end && drawn_ > 0 && now - drawn_ < pause) return;
  drawn_ = now;
  last_ = bar_line(done, details);
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", last_.c_str());
  std::fflush(stderr);
}

void Progress::print(const std::string& line) {
  std::fprintf(stderr, terminal_ ? "\r\033[K%s\n" : "%s\n", line.c_str());
  if (terminal_ && !last_.empty()) std::fprintf(stderr, "%s", last_.c_str());
  std::fflush(stderr);
}

void Progress::finish() {
  if (terminal_ && !last_.empty()) std::fprintf(stderr, "\n");
  last_.clear();
  std::fflush(stderr);
}

}  // namespace stepgraph
