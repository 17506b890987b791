// SPDX-License-Identifier: Apache-2.0
// Whole files in one call. A file that the user named and that cannot be opened is the user's to mend: UserError "cannot open data.csv: No such
// file or directory". A failure after that is a SystemError.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepgraph {

class Descriptor;

/// Of a regular file; UserError for pipes and devices, which may never end, and for more than `limit` bytes, before anything is allocated.
std::string read_file(const std::string& path, int64_t limit = INT64_MAX);
std::vector<std::byte> read_file_bytes(const std::string& path, int64_t limit = INT64_MAX);
/// The same of what a user writes by hand and may also send through a pipe or a terminal, of which at most 64 MiB are read.
std::string read_text(const std::string& path, int64_t limit = INT64_MAX);

/// A regular file that is read from its start in parts, for what need not be in memory as a whole. Errors are those of read_file.
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  int64_t bytes() const { return bytes_; }
  /// Fills `to` unless the end is met; 0 at the end.
  size_t read(std::span<char> to);
  void rewind() { at_ = 0; }

 private:
  std::string path_;
  std::unique_ptr<Descriptor> file_;
  int64_t bytes_ = 0, at_ = 0;
};

/// A folder that one process at a time writes to. The lock goes with the process, however it ends; it is a file `.lock` in the folder while it lasts.
class FolderLock {
 public:
  /// UserError "FOLDER is in use by process N". Where the file system knows no locks, none is taken.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string path_;
  std::unique_ptr<Descriptor> file_;
};

/// Creates or replaces, all or nothing: when it fails, or is killed, an older file is as it was. The bytes go to a temporary beside the file, which is
/// renamed once they are on the disk. An existing file keeps its mode, a link its place; what is no regular file (/dev/stdout) is written to directly.
void write_file(const std::string& path, std::string_view content);
/// UserError if write_file would fail at once, for want of a folder or of a right. Nothing is left behind.
void check_writable(const std::string& path);

}  // namespace stepgraph
