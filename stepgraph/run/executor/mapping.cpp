// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/mapping.h"

#include <sys/mman.h>

#include <string>

#include "stepgraph/base/error.h"

namespace stepgraph {

Mapping::Mapping(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* const found = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) throw SystemError("found no " + std::to_string(bytes) + " bytes of memory for the program");
  data_ = static_cast<std::byte*>(found);
  ::madvise(found, bytes, MADV_HUGEPAGE);  // a wish: without it all is only slower
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace stepgraph
