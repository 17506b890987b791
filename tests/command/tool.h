// SPDX-License-Identifier: Apache-2.0
// Starts the built command as a user would: with arguments, a directory of its own, and nothing else.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace stepgraph::testing {

using Arguments = std::vector<std::string>;

struct Outcome {
  int code = -1;    ///< exit code, or -1 when a signal ended it
  int signal = 0;   ///< that signal
  std::string out;  ///< standard output
  std::string err;  ///< standard error
};

/// Removed with all that is in it at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Of the project: data/digits.csv, examples/digits.toml.
std::string source_file(const std::string& name);
std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);
Arguments operator+(Arguments a, const Arguments& b);

struct Start {
  std::string directory;     ///< where it runs; empty: the root of the project
  std::string out;           ///< file for standard output, e.g. /dev/full; empty: kept
  int terminal_columns = 0;  ///< above 0: standard error is a terminal of this width
};

/// The command `stepgraph` with these arguments, while it runs.
class Running {
 public:
  explicit Running(const Arguments& arguments, const Start& start = {});
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Until standard output has so many lines, or the command has ended.
  void wait_for_lines(int count);
  void send(int signal);
  Outcome finish();

 private:
  bool ended();
  std::string read_terminal();

  TemporaryDirectory directory_;
  int process_ = -1, status_ = 0, terminal_ = -1;
  bool reaped_ = false;
};

Outcome run_tool(const Arguments& arguments, const Start& start = {});
/// A line for /bin/sh with $STEPGRAPH in it.
Outcome run_shell(const std::string& line, const std::string& directory = "");

}  // namespace stepgraph::testing
