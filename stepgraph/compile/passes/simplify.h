// SPDX-License-Identifier: Apache-2.0
// Local rewrites that keep every bit: small constants are folded by the op table's own `evaluate`; x*1, x/1, x-0 (and x+0 of integers), conversions to the
// same dtype, identity movements and double negations go; two movements in a row (broadcasts, reshapes, transposes, slices, conversions that lose nothing)
// become one; nodes without users go. Class: exact, so x + 0 of floats stays (it turns -0 into 0) and no rounding is skipped. Optional.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

Module simplify(Module module);

}  // namespace stepgraph
