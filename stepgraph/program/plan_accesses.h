// SPDX-License-Identifier: Apache-2.0
// Which bytes of an entry's buffers an instruction reads and writes, and that it may: views within their buffers, shapes and dtypes that fit the call, nothing
// that one part of an instruction writes and another touches.
#pragma once
#include <functional>
#include <vector>
#include "stepgraph/program/byte_region.h"
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

struct PlanAccess {
  int buffer = 0;
  bool is_write = false;
  ByteRegion region;      ///< in bytes of the buffer
  bool is_exact = true;   ///< false: some of these bytes may be left out
  bool in_place = false;  ///< a read by what writes the same element afterwards
};

class PlanAccessCollector {
 public:
  /// `addresses`: of each buffer's first byte, so that buffers which share memory are known. Both outlive the collector.
  PlanAccessCollector(const StepPlan& plan, const PlanEntry& entry, const std::vector<int64_t>& addresses)
      : plan_(plan), entry_(entry), addresses_(addresses) {}

  /// Of any instruction but a Repeat. InternalError or UserError for what is not sound.
  std::vector<PlanAccess> accesses(const Instruction& instruction, const SymbolValues& values) const;
  /// Of a dense view.
  PlanAccess dense(const View& view, DType dtype, bool is_write, const SymbolValues& values) const;
  int64_t buffer_bytes(int buffer, const SymbolValues& values) const;

 private:
  const StepPlan& plan_;
  const PlanEntry& entry_;
  const std::vector<int64_t>& addresses_;
};

/// "b3 'gradient of w'"
std::string buffer_name(const PlanEntry& entry, int buffer);
int64_t value_of(const Dim& dim, const SymbolValues& values);
/// All sizes that an instruction holds, those of a Repeat's body with it.
void for_each_size(const Instruction& instruction, const std::function<void(const Dim&)>& visit);

}  // namespace stepgraph
