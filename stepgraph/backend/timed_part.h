// SPDX-License-Identifier: Apache-2.0
// Parts of a compilation that are no passes of a module, in the pass log beside those.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include "stepgraph/compile/passes/pass.h"

namespace stepgraph {

/// Begins with its construction. `log` may be null.
class TimedPart {
 public:
  TimedPart(std::string name, PassLog* log) : name_(std::move(name)), log_(log), start_(now()) {}
  /// Counts of what it is given and gives: nodes, instructions, forms.
  void end(int64_t before, int64_t after, std::string why = {}) {
    if (log_ == nullptr) return;
    PassRecord record;
    record.name = name_;
    record.elapsed_us = now() - start_;
    record.nodes_before = before;
    record.nodes_after = after;
    record.why = std::move(why);
    log_->passes.push_back(std::move(record));
  }

 private:
  int64_t now() const { return log_ != nullptr && log_->clock_us ? log_->clock_us() : 0; }
  std::string name_;
  PassLog* log_;
  int64_t start_;
};

}  // namespace stepgraph
