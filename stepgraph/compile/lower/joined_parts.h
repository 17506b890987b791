// SPDX-License-Identifier: Apache-2.0
// Concatenations that nothing has to make: their parts are results that can be written where the whole has them.
#pragma once
#include <map>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Where a result lies in a whole that is dense.
struct JoinedPart {
  ValueId whole;
  Dim offset;
  std::vector<Dim> strides;
};

/// By part: element-wise results, which forms write, of a concatenation along any dim; and the gradients of q, k and v of an attention, [..., H, T, D] each, whose
/// heads lie side by side in rows [..., T, H * D] of one along its last dim. Others may read them where they lie. Number class: exact.
std::map<ValueId, JoinedPart> joined_parts(const Graph& graph);

}  // namespace stepgraph
