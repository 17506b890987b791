// SPDX-License-Identifier: Apache-2.0
#include "tests/command/tool.h"
#include "tests/support/places.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace stepgraph::testing {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("test: cannot " + what); }

/// With standard output and standard error as files or devices. Returns the process.
int spawn(const std::string& program, const Arguments& arguments, const std::string& directory, const std::string& out, const std::string& err) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 0600);
  pid_t process = -1;
  const int problem = posix_spawn(&process, program.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) fail("start " + program);
  return process;
}

/// A terminal of so many columns; what is written to `name` can be read from the result.
int open_terminal(int columns, std::string& name) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) fail("open a terminal");
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  ioctl(terminal, TIOCSWINSZ, &size);
  name = ptsname(terminal);
  return terminal;
}

std::string root_or(const std::string& directory) { return directory.empty() ? testing::source_root() : directory; }

Outcome outcome(int status, std::string out, std::string err) {
  Outcome found;
  if (WIFEXITED(status)) found.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) found.signal = WTERMSIG(status);
  found.out = std::move(out);
  found.err = std::move(err);
  return found;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "stepgraph-test-XXXXXX").string();
  if (!mkdtemp(name.data())) fail("make a temporary directory");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string source_file(const std::string& name) { return std::string(testing::source_root()) + "/" + name; }

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) fail("write " + path);
}

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Running::Running(const Arguments& arguments, const Start& start) {
  std::string err = directory_ / "err";
  if (start.terminal_columns > 0) terminal_ = open_terminal(start.terminal_columns, err);
  process_ = spawn(testing::built_tool(), arguments, root_or(start.directory), start.out.empty() ? directory_ / "out" : start.out, err);
}

Running::~Running() {
  if (!reaped_) {
    kill(process_, SIGKILL);
    waitpid(process_, &status_, 0);
  }
  if (terminal_ >= 0) close(terminal_);
}

bool Running::ended() {
  if (!reaped_) reaped_ = waitpid(process_, &status_, WNOHANG) == process_;
  return reaped_;
}

void Running::wait_for_lines(int count) {
  while (!ended()) {
    const std::string text = read_text(directory_ / "out");
    if (std::count(text.begin(), text.end(), '\n') >= count) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void Running::send(int signal) {
  if (!ended()) kill(process_, signal);
}

std::string Running::read_terminal() {
  std::string text;
  char buffer[4096];
  // Fails once nobody holds the other side any more.
  for (ssize_t count = 0; (count = read(terminal_, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(count));
  return text;
}

Outcome Running::finish() {
  std::string err;
  if (terminal_ >= 0) err = read_terminal();
  if (!reaped_) waitpid(process_, &status_, 0);
  reaped_ = true;
  if (terminal_ < 0) err = read_text(directory_ / "err");
  return outcome(status_, read_text(directory_ / "out"), err);
}

Outcome run_tool(const Arguments& arguments, const Start& start) { return Running(arguments, start).finish(); }

Outcome run_shell(const std::string& line, const std::string& directory) {
  const TemporaryDirectory files;
  const int process = spawn("/bin/sh", {"-c", "STEPGRAPH='" + std::string(testing::built_tool()) + "'; " + line}, root_or(directory), files / "out", files / "err");
  int status = 0;
  waitpid(process, &status, 0);
  return outcome(status, read_text(files / "out"), read_text(files / "err"));
}

}  // namespace stepgraph::testing
