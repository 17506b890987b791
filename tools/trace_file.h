// SPDX-License-Identifier: Apache-2.0
// A trace of compiled runs in the format of chrome://tracing and Perfetto: one slice an instruction and thread.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>
#include "stepgraph/run/executor/trace.h"

namespace stepgraph {

/// Keeps the last runs of each entry; a slice is gone when a later run has pushed it out.
class TraceFile {
 public:
  /// Valid while this lives.
  TraceSink sink();
  /// SystemError if it cannot be written.
  void write(const std::string& path) const;

 private:
  struct Slice {
    std::string name, scope, phase;
    int thread = 0;
    int64_t start_ns = 0, end_ns = 0;
    double bytes = 0, flops = 0;
  };
  struct Run {
    std::string entry;
    std::vector<Slice> slices;
  };
  mutable std::mutex mutex_;  // ranks of one process
  std::vector<Run> runs_;
};

}  // namespace stepgraph
