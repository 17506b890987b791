// SPDX-License-Identifier: Apache-2.0
// An open file of the operating system that closes itself. For .cpp files, where file.h and disk.h do not tell what has to be known.
#pragma once
#include <unistd.h>
#include <string>
#include <system_error>
#include <utility>

namespace stepgraph {

/// What errno stands for: "No such file or directory".
inline std::string cause(int error) { return std::generic_category().message(error); }

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
  void reset(int value) {
    if (value_ >= 0) ::close(value_);
    value_ = value;
  }

 private:
  int value_;
};

}  // namespace stepgraph
