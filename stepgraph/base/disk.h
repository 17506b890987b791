// SPDX-License-Identifier: Apache-2.0
// The file system as an interface, so that code that must survive a crash can be tested against one. Paths are '/'-separated.
// Every failure is a SystemError that names the path and the cause: "cannot rename a.tmp to a: No such file or directory".
//
// What is durable follows POSIX at its strictest: the bytes of a file after DiskFile::sync, the names of a directory (creations, renames, removals)
// after sync_directory. A rename replaces an existing file at once, with respect to other processes; across a crash only once it is synced.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/base/error.h"

namespace stepgraph {

/// A file open for appending. Destroying it without close() closes it and ignores errors.
class DiskFile {
 public:
  virtual ~DiskFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  void append(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }
  virtual void sync() = 0;
  virtual void close() = 0;
};

class Disk {
 public:
  virtual ~Disk() = default;
  /// The whole file; an error if it is larger than `limit` bytes, before anything is allocated.
  virtual std::vector<std::byte> read(const std::string& path, int64_t limit = INT64_MAX) const = 0;
  /// Exactly `count` bytes from `offset`; an error if the file ends before.
  virtual std::vector<std::byte> read_range(const std::string& path, int64_t offset, int64_t count) const = 0;
  virtual int64_t file_size(const std::string& path) const = 0;
  virtual bool exists(const std::string& path) const = 0;  ///< a file or a directory
  virtual bool is_directory(const std::string& path) const = 0;
  virtual std::vector<std::string> list(const std::string& directory) const = 0;  ///< names, sorted, without "." and ".."

  virtual void make_directories(const std::string& path) = 0;  ///< with parents; no error if it is there
  /// Creates or truncates.
  virtual std::unique_ptr<DiskFile> create(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove_tree(const std::string& path) = 0;  ///< a file or a directory with its content; no error if it is not there
  virtual void sync_directory(const std::string& path) = 0;

  std::string read_text(const std::string& path, int64_t limit = INT64_MAX) const;
};

std::unique_ptr<Disk> posix_disk();

/// Thrown by a FaultyDisk at the moment of the crash and by every operation after it, until restart().
class DiskCrash : public SystemError {
 public:
  using SystemError::SystemError;
};

enum class DiskFault {
  Error,  ///< the operation fails once, nothing of it is done; later ones work
  Full,   ///< from this operation on no bytes can be added: an append writes half of its bytes and fails, create fails
  Crash,  ///< the machine stops in the middle of this operation
};
/// What a crash leaves of the operations that were not synced. A real disk may do any of these.
enum class CrashOutcome {
  SyncedOnly,      ///< nothing that was not synced
  NamesOnly,       ///< all names, but of each file only the synced bytes: a renamed file may be found empty
  EverythingHeld,  ///< all that was done, the interrupted append in half
};

/// A disk in memory that fails on request, for tests. Write operations are counted from 0: make_directories, create, append, sync, close, rename,
/// remove_tree, sync_directory. Safe to use from several threads.
class FaultyDisk : public Disk {
 public:
  FaultyDisk();
  ~FaultyDisk() override;
  /// The write operation with this number (counted since construction) meets the fault. Replaces an earlier request.
  void fail_at(int64_t operation, DiskFault fault);
  void clear_fault();                ///< also ends Full
  int64_t write_operations() const;  ///< begun so far
  bool crashed() const;
  /// The machine comes back (also without a crash: then as if the power had failed now). Files open before are dead. Clears the fault.
  void restart(CrashOutcome outcome);
  /// Flips one bit of a stored file, synced bytes included: for tests of checksums.
  void flip_bit(const std::string& path, int64_t byte, int bit);
  void truncate(const std::string& path, int64_t size);

  std::vector<std::byte> read(const std::string& path, int64_t limit = INT64_MAX) const override;
  std::vector<std::byte> read_range(const std::string& path, int64_t offset, int64_t count) const override;
  int64_t file_size(const std::string& path) const override;
  bool exists(const std::string& path) const override;
  bool is_directory(const std::string& path) const override;
  std::vector<std::string> list(const std::string& directory) const override;
  void make_directories(const std::string& path) override;
  std::unique_ptr<DiskFile> create(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_tree(const std::string& path) override;
  void sync_directory(const std::string& path) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace stepgraph
