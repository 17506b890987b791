// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

std::string cause(int error) { return std::generic_category().message(error); }

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

[[noreturn]] void too_large(const std::string& path, int64_t limit) {
  throw UserError("cannot read " + path + ": larger than the limit of " + std::to_string(limit) + " bytes");
}

/// Into a std::string or a vector of bytes. Reads on to the end whatever the size says, since of a pipe or /proc it says 0.
template <class Bytes>
Bytes read_all(const std::string& path, int64_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw UserError("cannot open " + path + ": " + cause(errno));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw SystemError("cannot read " + path + ": " + cause(errno));
  if (S_ISDIR(info.st_mode)) throw UserError("cannot open " + path + ": " + cause(EISDIR));
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

}  // namespace

std::string read_file(const std::string& path, int64_t limit) { return read_all<std::string>(path, limit); }
std::vector<std::byte> read_file_bytes(const std::string& path, int64_t limit) { return read_all<std::vector<std::byte>>(path, limit); }

void write_file(const std::string& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) throw UserError("cannot open " + path + " for writing: " + cause(errno));
  while (!content.empty()) {
    const ssize_t count = ::write(file.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError("cannot write " + path + ": " + cause(errno));
    content.remove_prefix(static_cast<size_t>(count));
  }
  if (::close(file.release()) != 0) throw SystemError("cannot write " + path + ": " + cause(errno));
}

}  // namespace stepgraph
