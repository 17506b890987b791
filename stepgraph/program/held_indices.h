// SPDX-License-Identifier: Apache-2.0
// Which bytes of an entry's buffers hold indices within a range, since an instruction has read by them and would have found fault with others: then what reads
// or scatters by them once more, within the same range or a larger one, cannot fail. For the verifier of plans.
#pragma once
#include <cstdint>
#include <map>
#include <vector>
#include "stepgraph/program/byte_region.h"
#include "stepgraph/program/index_bounds.h"
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

class HeldIndices {
 public:
  explicit HeldIndices(const StepPlan& plan) : plan_(plan), uses_(plan.forms.size()), is_known_(plan.forms.size(), 0) {}

  /// What the instruction, which is no Repeat, finds fault with if it is out of range.
  void add(const InstructionOp& op, const SymbolValues& values);
  /// Bytes of a buffer get other contents.
  void forget(int buffer, int64_t begin, int64_t end);
  /// Whether the instruction, which is no Repeat, may fail by the data that it is given, as far as its kind tells.
  bool may_fail(const InstructionOp& op);
  /// Whether it cannot, since all indices that it computes with are held to its ranges.
  bool are_held(const InstructionOp& op, const SymbolValues& values);

 private:
  struct Held {
    DType dtype = DType::I64;
    int64_t bound = 0;
    IntervalSet bytes;
  };
  const std::vector<IndexUse>& uses_of(int form);
  bool is_held(int buffer, DType dtype, const ByteRegion& region, int64_t bound) const;

  const StepPlan& plan_;
  std::vector<std::vector<IndexUse>> uses_;  ///< by form, once it was asked for
  std::vector<char> is_known_;
  std::map<int, std::vector<Held>> held_;  ///< by buffer
};

}  // namespace stepgraph
