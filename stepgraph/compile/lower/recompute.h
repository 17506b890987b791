// SPDX-License-Identifier: Apache-2.0
// Values that are cheaper to make again than to keep: a point-wise value that is read again behind later calls (in the backward pass) and by nothing that wants it in
// memory is cloned there, when what it is made of is kept anyway, or is smaller. So what a norm or an activation saves is its input and a number a row. A clone is
// the same function of the same values. Class: exact.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Of a flat module; the entries' graphs alone.
Module recompute_cheap(Module flat);

}  // namespace stepgraph
