// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

#include "stepgraph/base/descriptor.h"
#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

[[noreturn]] void too_large(const std::string& path, int64_t limit) {
  throw UserError("cannot read " + path + ": larger than the limit of " + std::to_string(limit) + " bytes");
}

enum class Wanted { RegularFile, Text };
constexpr int64_t pipe_bytes_max = int64_t{64} << 20;

int open_to_read(const std::string& path, Wanted wanted) {
  // A pipe that nobody writes to must not block where it is refused anyway.
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (wanted == Wanted::RegularFile ? O_NONBLOCK : 0));
  if (opened < 0) throw UserError("cannot open " + path + ": " + cause(errno));
  return opened;
}
struct stat status_of(const Descriptor& file, const std::string& path, Wanted wanted) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw SystemError("cannot read " + path + ": " + cause(errno));
  if (S_ISDIR(info.st_mode)) throw UserError("cannot open " + path + ": " + cause(EISDIR));
  if (!S_ISREG(info.st_mode) && wanted == Wanted::RegularFile) throw UserError("cannot read " + path + ": is not a regular file");
  return info;
}

/// Into a std::string or a vector of bytes. Reads on to the end whatever the size says, since of a pipe or /proc it says 0.
template <class Bytes>
Bytes read_all(const std::string& path, int64_t limit, Wanted wanted) {
  const Descriptor file(open_to_read(path, wanted));
  const struct stat info = status_of(file, path, wanted);
  if (!S_ISREG(info.st_mode)) limit = std::min(limit, pipe_bytes_max);
  if (info.st_size > limit) too_large(path, limit);
  Bytes result;
  size_t used = 0;
  result.resize(static_cast<size_t>(info.st_size) + 1);  // one more, so that the end is seen without growing
  for (;;) {
    if (used == result.size()) result.resize(used + std::max<size_t>(used / 2, 4096));
    const ssize_t count = ::read(file.get(), result.data() + used, result.size() - used);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError("cannot read " + path + ": " + cause(errno));
    if (count == 0) break;
    used += static_cast<size_t>(count);
    if (used > static_cast<uint64_t>(limit)) too_large(path, limit);
  }
  result.resize(used);
  return result;
}

// ---- writing

[[noreturn]] void cannot_write(const std::string& path, int error) { throw SystemError("cannot write " + path + ": " + cause(error)); }
[[noreturn]] void cannot_open(const std::string& path, int error) { throw UserError("cannot open " + path + " for writing: " + cause(error)); }

void write_all(const Descriptor& file, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = ::write(file.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_write(path, errno);
    content.remove_prefix(static_cast<size_t>(count));
  }
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Where a file is to be put: the links of the path followed, even to a file that is not there yet.
struct Target {
  std::string path;
  struct stat info {};
  bool exists = false;
  bool directly = false;  ///< no name that could be taken by another file
};

Target target_of(const std::string& path) {
  constexpr int links_max = 40;
  Target target{path, {}, false, false};
  target.exists = ::stat(path.c_str(), &target.info) == 0;
  if (!target.exists && errno != ENOENT) cannot_open(path, errno);
  if (target.exists) {
    if (S_ISDIR(target.info.st_mode)) cannot_open(path, EISDIR);
    if (::access(path.c_str(), W_OK) != 0) cannot_open(path, errno);
    target.directly = !S_ISREG(target.info.st_mode);
    // /dev/stdout may be a regular file; another one under its name would not be what the command writes on to.
    for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
      struct stat open {};
      if (::fstat(standard, &open) == 0 && open.st_dev == target.info.st_dev && open.st_ino == target.info.st_ino) target.directly = true;
    }
    if (target.directly) return target;
  }
  struct stat link {};
  for (int i = 0; ::lstat(target.path.c_str(), &link) == 0 && S_ISLNK(link.st_mode); ++i) {
    std::string to(PATH_MAX, 0);
    const ssize_t size = ::readlink(target.path.c_str(), to.data(), to.size());
    if (size < 0 || i == links_max) cannot_open(path, size < 0 ? errno : ELOOP);
    to.resize(static_cast<size_t>(size));
    target.path = to.starts_with('/') ? to : folder_of(target.path) + "/" + to;
  }
  return target;
}

/// A new file beside the target, removed again unless it took the target's place.
class Temporary {
 public:
  explicit Temporary(const Target& target) {
    constexpr int tries = 1000;  // files of earlier runs that were killed may be in the way
    const std::string start = folder_of(target.path) + "/.stepgraph-" + std::to_string(::getpid()) + "-";
    for (int i = 0; i < tries && file_.get() < 0; ++i) {
      path_ = start + std::to_string(i) + ".tmp";
      file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (file_.get() < 0 && errno != EEXIST) break;
    }
    error_ = file_.get() < 0 ? errno : 0;
    if (error_ != 0 || !target.exists) return;
    // Owner and mode are of the file that is replaced, as far as this user may give them.
    if (::fchown(file_.get(), target.info.st_uid, target.info.st_gid) != 0) errno = 0;
    if (::fchmod(file_.get(), target.info.st_mode & 07777) != 0) errno = 0;
  }
  ~Temporary() {
    if (file_.get() >= 0 || is_written_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  int error() const { return error_; }

  /// `path` is the user's, for messages. False if the target cannot be replaced by a rename: it is a mount point.
  bool replace(const Target& target, const std::string& path, std::string_view content) {
    write_all(file_, path, content);
    if (::fsync(file_.get()) != 0 && errno != EINVAL && errno != ENOTSUP) cannot_write(path, errno);
    is_written_ = true;
    if (::close(file_.release()) != 0) cannot_write(path, errno);
    if (::rename(path_.c_str(), target.path.c_str()) != 0) {
      if (errno == EBUSY || errno == EXDEV) return false;
      cannot_write(path, errno);
    }
    is_written_ = false;
    // The new name is durable with its folder; where a folder cannot be synced, the file is whole all the same.
    const Descriptor folder(::open(folder_of(target.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() >= 0 && ::fsync(folder.get()) != 0) errno = 0;
    return true;
  }

 private:
  std::string path_;
  Descriptor file_{-1};
  int error_ = 0;
  bool is_written_ = false;
};

/// A file that may be written in a folder that may not be: nothing is left but to write over it.
bool is_locked_folder(int error) { return error == EACCES || error == EPERM || error == EROFS; }

void write_directly(const std::string& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) cannot_open(path, errno);
  write_all(file, path, content);
  if (::close(file.release()) != 0) cannot_write(path, errno);
}

}  // namespace

std::string read_file(const std::string& path, int64_t limit) { return read_all<std::string>(path, limit, Wanted::RegularFile); }
std::vector<std::byte> read_file_bytes(const std::string& path, int64_t limit) {
  return read_all<std::vector<std::byte>>(path, limit, Wanted::RegularFile);
}
std::string read_text(const std::string& path, int64_t limit) { return read_all<std::string>(path, limit, Wanted::Text); }

FileReader::FileReader(const std::string& path) : path_(path), file_(std::make_unique<Descriptor>(open_to_read(path, Wanted::RegularFile))) {
  bytes_ = status_of(*file_, path, Wanted::RegularFile).st_size;
}
FileReader::~FileReader() = default;

size_t FileReader::read(std::span<char> to) {
  size_t used = 0;
  while (used < to.size()) {
    const ssize_t count = ::pread(file_->get(), to.data() + used, to.size() - used, at_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError("cannot read " + path_ + ": " + cause(errno));
    if (count == 0) break;
    used += static_cast<size_t>(count);
    at_ += count;
  }
  return used;
}

namespace {

/// The number that the holder of a lock wrote into it; it may not have come to that yet.
std::string holder_of(const Descriptor& file) {
  char digits[20];
  const ssize_t count = ::pread(file.get(), digits, sizeof digits, 0);
  std::string text(digits, static_cast<size_t>(std::max<ssize_t>(count, 0)));
  text.resize(std::min(text.find_first_not_of("0123456789"), text.size()));
  return text.empty() ? "another process" : "process " + text;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(folder + "/.lock") {
  for (;;) {
    file_ = std::make_unique<Descriptor>(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file_->get() < 0) throw SystemError("cannot create " + path_ + ": " + cause(errno));
    if (::flock(file_->get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) throw UserError(folder + " is in use by " + holder_of(*file_) + "; wait for its end, or name another folder");
      break;  // no locks here
    }
    // The holder before may have removed the file between our opening and locking it.
    struct stat locked{}, named{};
    if (::fstat(file_->get(), &locked) == 0 && ::stat(path_.c_str(), &named) == 0 && locked.st_dev == named.st_dev && locked.st_ino == named.st_ino) break;
  }
  // For messages alone: a full disk is no reason to go without the lock.
  const std::string number = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file_->get(), 0) != 0 || ::pwrite(file_->get(), number.data(), number.size(), 0) < 0) errno = 0;
}

FolderLock::~FolderLock() { ::unlink(path_.c_str()); }  // while it is held: whoever waits sees another file under the name

void write_file(const std::string& path, std::string_view content) {
  const Target target = target_of(path);
  if (target.directly) return write_directly(path, content);
  {
    Temporary temporary(target);
    if (temporary.error() == 0) {
      if (temporary.replace(target, path, content)) return;
    } else if (!target.exists || !is_locked_folder(temporary.error())) {
      cannot_open(path, temporary.error());
    }
  }
  write_directly(path, content);
}

void check_writable(const std::string& path) {
  const Target target = target_of(path);
  if (target.directly) return;
  const Temporary temporary(target);
  if (temporary.error() != 0 && !(target.exists && is_locked_folder(temporary.error()))) cannot_open(path, temporary.error());
}

}  // namespace stepgraph
