// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "stepgraph/base/descriptor.h"
#include "stepgraph/base/disk.h"

namespace stepgraph {
namespace {

[[noreturn]] void disk_error(const std::string& what, int error) { throw SystemError("cannot " + what + ": " + cause(error)); }

/// SystemError "cannot WHAT: ..." where it cannot be opened.
int open_or_throw(const std::string& path, int flags, const std::string& what) {
  const int opened = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (opened < 0) disk_error(what, errno);
  return opened;
}

class PosixFile : public DiskFile {
 public:
  explicit PosixFile(const std::string& path) : path_(path), file_(open_or_throw(path, O_WRONLY | O_CREAT | O_TRUNC, "create " + path)) {}

  void append(std::span<const std::byte> bytes) override {
    SG_CHECK(file_.get() >= 0, path_ + " is closed");
    while (!bytes.empty()) {
      const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) disk_error("write " + path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }
  void sync() override {
    SG_CHECK(file_.get() >= 0, path_ + " is closed");
    if (::fsync(file_.get()) != 0) disk_error("sync " + path_, errno);
  }
  void close() override {
    if (file_.get() >= 0 && ::close(file_.release()) != 0) disk_error("close " + path_, errno);
  }

 private:
  std::string path_;
  Descriptor file_;
};

class PosixDisk : public Disk {
 public:
  std::vector<std::byte> read(const std::string& path, int64_t limit) const override {
    const Descriptor file(open_or_throw(path, O_RDONLY | O_NONBLOCK, "open " + path));
    const int64_t size = size_of(file, path);
    if (size > limit) throw SystemError("cannot read " + path + ": found " + std::to_string(size) + " bytes, the limit is " + std::to_string(limit));
    return read_from(file, path, 0, size);
  }

  std::vector<std::byte> read_range(const std::string& path, int64_t offset, int64_t count) const override {
    const Descriptor file(open_or_throw(path, O_RDONLY | O_NONBLOCK, "open " + path));
    const int64_t size = size_of(file, path);
    // Before allocating: the count may come from a damaged file.
    if (offset < 0 || count < 0 || offset > size || count > size - offset)
      throw SystemError("cannot read " + path + ": wanted " + std::to_string(count) + " bytes from " + std::to_string(offset) + ", it has " +
                        std::to_string(size));
    return read_from(file, path, offset, count);
  }

  int64_t file_size(const std::string& path) const override { return size_of(Descriptor(open_or_throw(path, O_RDONLY | O_NONBLOCK, "open " + path)), path); }
  bool exists(const std::string& path) const override { return status_of(path).has_value(); }
  bool is_directory(const std::string& path) const override {
    const auto status = status_of(path);
    return status && S_ISDIR(status->st_mode);
  }

  std::vector<std::string> list(const std::string& directory) const override {
    std::vector<std::string> names;
    std::error_code error;
    auto entry = std::filesystem::directory_iterator(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) names.push_back(entry->path().filename().string());
    if (error) throw SystemError("cannot list " + directory + ": " + error.message());
    std::sort(names.begin(), names.end());
    return names;
  }

  void make_directories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) throw SystemError("cannot make directory " + path + ": " + error.message());
    if (!is_directory(path)) disk_error("make directory " + path, ENOTDIR);
  }
  std::unique_ptr<DiskFile> create(const std::string& path) override { return std::make_unique<PosixFile>(path); }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) disk_error("rename " + from + " to " + to, errno);
  }
  void remove_tree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) throw SystemError("cannot remove " + path + ": " + error.message());
  }
  void sync_directory(const std::string& path) override {
    const Descriptor directory(open_or_throw(path, O_RDONLY | O_DIRECTORY, "open directory " + path));
    if (::fsync(directory.get()) != 0) disk_error("sync directory " + path, errno);
  }

 private:
  /// Nothing where there is nothing; an error where that cannot be known: for want of a right, through links that lead in a circle.
  static std::optional<struct stat> status_of(const std::string& path) {
    struct stat info{};
    if (::stat(path.c_str(), &info) == 0) return info;
    if (errno != ENOENT && errno != ENOTDIR) disk_error("look at " + path, errno);
    return std::nullopt;
  }
  static int64_t size_of(const Descriptor& file, const std::string& path) {
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) disk_error("read " + path, errno);
    if (S_ISDIR(info.st_mode)) disk_error("read " + path, EISDIR);
    // Opened without blocking: a pipe may have no writer, a device no end.
    if (!S_ISREG(info.st_mode)) throw SystemError("cannot read " + path + ": is not a regular file");
    return info.st_size;
  }

  static std::vector<std::byte> read_from(const Descriptor& file, const std::string& path, int64_t offset, int64_t count) {
    std::vector<std::byte> result(static_cast<size_t>(count));
    size_t done = 0;
    while (done < result.size()) {
      const ssize_t got = ::pread(file.get(), result.data() + done, result.size() - done, offset + static_cast<int64_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) disk_error("read " + path, errno);
      if (got == 0) throw SystemError("cannot read " + path + ": it became shorter while it was read");
      done += static_cast<size_t>(got);
    }
    return result;
  }
};

}  // namespace

std::string Disk::read_text(const std::string& path, int64_t limit) const {
  const std::vector<std::byte> bytes = read(path, limit);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::unique_ptr<Disk> posix_disk() { return std::make_unique<PosixDisk>(); }

}  // namespace stepgraph
