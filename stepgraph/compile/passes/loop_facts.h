// SPDX-License-Identifier: Apache-2.0
// What each value of a Loop's body depends on.
#pragma once
#include <optional>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

enum class LoopValue : uint8_t {
  Invariant,  ///< the same in each iteration
  Sliced,     ///< of scanned slices and invariants alone
  Varying,    ///< of carried values or the iteration's number; or not to be moved: control, collectives
};

struct LoopFacts {
  /// `is_spread[s]`: scanned input s has equal slices.
  LoopFacts(const Module& module, const Loop& loop, const std::vector<bool>& is_spread);
  std::vector<LoopValue> values;
  std::vector<bool> of_inputs;                                 ///< depends on an input of the body
  std::vector<bool> can_stack;                                 ///< all iterations at once are an op that `stacked_op` gives, or no Sliced one
  std::vector<int32_t> uses;                                   ///< by nodes and outputs
  bool is_fixed(size_t carry) const { return fixed_[carry]; }  ///< a carried value that the body hands on as it is

 private:
  std::vector<bool> fixed_;
};

/// The op that does for all iterations, as dim 0, what `node` does in one. Operands that are Invariant are spread to that dim before, but for the right side of
/// a matmul. Nothing where there is none.
std::optional<Op> stacked_op(const Node& node, const LoopFacts& facts, const Dim& trip_count);

}  // namespace stepgraph
