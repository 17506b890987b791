// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/process_memory.h"

#include <fstream>
#include <string>

namespace stepgraph {
namespace {

int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != key) continue;
    int64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

int64_t resident_bytes() { return status_bytes("VmRSS:"); }
int64_t resident_bytes_max() { return status_bytes("VmHWM:"); }

}  // namespace stepgraph
